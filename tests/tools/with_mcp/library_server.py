"""An MCP server built with the library, 1.x or 2.x; it counts its own calls. Arguments: transport, port."""

import sys

try:
    from mcp.server.mcpserver import MCPServer as Server
except ImportError:
    from mcp.server.fastmcp import FastMCP as Server

COUNT = {"calls": 0}
server = Server("counting")


@server.tool()
def count(step: int) -> int:
    """Count on from what this server has seen.

    Args:
        step: How far.
    """
    COUNT["calls"] += step
    return COUNT["calls"]


@server.tool()
def complain(text: str) -> str:
    """Always fails."""
    raise ValueError(text)


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run(transport="stdio")
    else:
        import uvicorn

        uvicorn.run(server.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[2]), log_level="error")
