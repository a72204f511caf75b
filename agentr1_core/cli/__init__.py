"""The ``agentr1`` command: one file for each command, each imported when it is run."""
