"""Weather tools for agents."""
