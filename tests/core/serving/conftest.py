"""A small real server, run as a process, for the process and restart tests."""

import sys
import textwrap

import pytest

from agentr1_core.errors import EngineError
from agentr1_core.serving import ServerClient, ServerProcess, free_port

SERVER = textwrap.dedent("""
    import os, sys
    from http.server import BaseHTTPRequestHandler, HTTPServer

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            if self.path == "/die":
                os._exit(3)
            data = str(os.getpid()).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args):
            pass

    print("serving", flush=True)
    HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
""")


class SmallServer:
    """Address, process and health check."""

    def __init__(self, folder, script=SERVER):
        self.port = free_port()
        self.log = folder / "logs" / "server.log"
        self.script = script
        self.client = ServerClient(f"http://127.0.0.1:{self.port}")

    def process(self):
        return ServerProcess([sys.executable, "-c", self.script, str(self.port)], {}, self.log)

    async def pid(self):
        return await self.client.get("/")

    async def is_ready(self):
        try:
            await self.pid()
        except EngineError:
            return False
        return True


@pytest.fixture
def small_server(tmp_path):
    def make(script=SERVER):
        return SmallServer(tmp_path, script)

    return make
