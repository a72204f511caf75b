"""Recipes: environments with their data and run files, ready for ``agentr1 train <name>``."""
