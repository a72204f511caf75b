"""An MCP server over its pipes without any library: it starts fast and misbehaves on request.

Every process it becomes is noted in the file named by its first argument.
"""

import json
import os
import sys
import time
from pathlib import Path

SCHEMA = {"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]}


def tool(name):
    return {"name": name, "description": f"Acts as told ({name}).", "inputSchema": SCHEMA}


def note(text):
    with open(sys.argv[1], "a") as log:
        log.write(text + "\n")


def answer(method, params):
    if method == "initialize":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "bare", "version": "1"},
        }
    if method == "tools/list":
        if params.get("cursor"):
            return {"tools": [tool("second.tool")]}
        return {"tools": [tool("act")], "nextCursor": "more"}
    if method == "tools/call":
        return act(params["arguments"]["how"])
    return {}


def act(how):
    if how == "die":
        note("dies")
        os._exit(1)
    if how == "die once" and "dies" not in Path(sys.argv[1]).read_text():
        note("dies")
        os._exit(1)
    if how == "hang":
        note("hangs")
        time.sleep(60)
    if how == "pid":
        how = str(os.getpid())
    if how == "env":
        how = json.dumps(dict(os.environ))
    if how == "long":
        how = "x" * 100_000
    return {"content": [{"type": "text", "text": how}, {"type": "image", "data": "AA==", "mimeType": "image/png"}]}


def main():
    note(f"start {os.getpid()}")
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            if request["method"] == "server/discover":
                reply = {"error": {"code": -32601, "message": "Method not found"}}
            else:
                reply = {"result": answer(request["method"], request.get("params") or {})}
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], **reply}) + "\n")
            sys.stdout.flush()
    note(f"end {os.getpid()}")


if __name__ == "__main__":
    main()
