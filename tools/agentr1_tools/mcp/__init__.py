"""Tools from any MCP server, on ``mcp`` 1.x and 2.x alike; nothing is imported from it before a run needs it."""
