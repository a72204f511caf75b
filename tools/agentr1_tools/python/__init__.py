"""The ``python`` tool: code that a model wrote, run in a sandbox that is checked before the run starts."""
