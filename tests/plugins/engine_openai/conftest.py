"""A service with the chat completions format on a real socket, which answers as it is told to."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from agentr1_core.engine import SamplingParams
from agentr1_engine_openai import OpenAIEngine


class Service:
    """Requests are kept in ``asked``; ``answers`` holds what comes next, the last one for ever.

    An answer is a message, a whole response body, or ``(status, body, headers)``.
    """

    def __init__(self):
        self.asked = []
        self.answers = ["Hello."]
        self.models = (200, {"data": [{"id": "tiny"}, {"id": "big"}]}, {})
        #: Set when a first request is there; answers wait for ``release``.
        self.arrived = threading.Event()
        self.release = threading.Event()
        self.release.set()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self._send(*service.models if self.path.endswith("/models") else (404, {}, {}))

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                service.asked.append({"path": self.path, "headers": dict(self.headers), "body": body})
                service.arrived.set()
                service.release.wait(60)
                answer = service.answers[0] if len(service.answers) == 1 else service.answers.pop(0)
                self._send(*service.response(answer))

            def _send(self, status, body, headers):
                content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"content-length": str(len(content)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, *_):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @staticmethod
    def response(answer):
        if isinstance(answer, tuple):
            return answer
        if isinstance(answer, dict) and ("choices" in answer or "error" in answer):
            return 200, answer, {}
        message = {"role": "assistant", "content": answer} if isinstance(answer, str) else answer
        calls = bool(message.get("tool_calls"))
        return (
            200,
            {
                "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}],
                "usage": {
                    "prompt_tokens": 11,
                    "completion_tokens": 7,
                    "prompt_tokens_details": {"cached_tokens": 3},
                },
            },
            {},
        )

    @staticmethod
    def counted(text, n_tokens):
        """A response that says how many tokens it has."""
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return {"choices": [choice], "usage": {"prompt_tokens": 11, "completion_tokens": n_tokens}}

    @property
    def bodies(self):
        return [request["body"] for request in self.asked]

    def close(self):
        self.release.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service():
    service = Service()
    yield service
    service.close()


@pytest.fixture(scope="class")
def lasting_service():
    service = Service()
    service.answers = [Service.counted("Hello.", 2)]
    yield service
    service.close()


@pytest.fixture
def engine_of(service):
    """``engine_of(model=...)``: an engine for the service that does not wait long between retries."""

    def make(**settings):
        given = {"model": "tiny", "base_url": service.url, "retry_delay_s": 0.01, **settings}
        return OpenAIEngine(OpenAIEngine.Settings(**given))

    return make


@pytest.fixture
def ask(run):
    """``ask(engine, messages, tools, **sampling)``: one reply from an engine that is started and closed for it."""

    def one(engine, messages=({"role": "user", "content": "Hi"},), tools=(), **sampling):
        async def work():
            try:
                await engine.start()
                return await engine.chat(messages, tools, SamplingParams(**sampling))
            finally:
                await engine.close()

        return run(work())

    return one
