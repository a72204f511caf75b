"""First-party tools for agentr1, and the model for tools of your own.

Each tool is a file; ``plugin.py`` offers them by name. Importing this package imports none of their libraries.
"""
