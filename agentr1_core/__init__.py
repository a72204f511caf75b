"""agentr1 core."""
