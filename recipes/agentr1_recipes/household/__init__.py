"""A household game in plain Python: ALFWorld's kind of tasks and commands, in houses of our own. It is not ALFWorld."""
