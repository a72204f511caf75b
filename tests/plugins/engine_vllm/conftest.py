"""A scripted HTTP server that speaks vLLM's routes, for faults that a real one cannot be made to show."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from agentr1_engine_vllm import VLLMEngine


class FakeVLLM:
    """Answers like a healthy server; ``on[path]`` replaces one answer by ``(status, body)`` or a function's result."""

    def __init__(self):
        self.on = {}
        self.seen = []
        self.label = "default"
        self.aborted = set()
        self.token = None
        handler = type("Handler", (_Handler,), {"fake": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()

    def paths(self):
        return [path for path, _, _ in self.seen]

    def generations(self):
        return [body for path, _, body in self.seen if path.endswith("generate")]

    def answer(self, path, query, body):
        if path == "/inference/v1/generate":
            return 200, self.generation(body)
        if path == "/update_weight_version":
            self.label = body["new_version"]
        if path == "/abort_requests":
            self.aborted.update(body.get("request_ids", []))
        fixed = {
            "/version": {"version": "0.32.0"},
            "/v1/models": {"data": [{"id": "policy", "max_model_len": 64}]},
            "/reset_prefix_cache": {"success": True},
        }
        return 200, fixed.get(path, {})

    def generation(self, body, **changes):
        """As vLLM answers: token 7 until ``max_tokens``, each with log-prob -0.5 (0 where only one is in reach)."""
        n = body["sampling_params"]["max_tokens"]
        value = 0.0 if body["sampling_params"]["top_k"] == 1 else -0.5
        choice = {
            "finish_reason": "length",
            "token_ids": [7] * n,
            "logprobs": {"content": [{"token_id": 7, "logprob": value}] * n},
            "weight_versions": [{"version": self.label, "start": 0, "end": n}],
            **changes,
        }
        return {"choices": [choice], "usage": {"prompt_tokens_details": {"cached_tokens": 3}}}

    def until_aborted(self, body):
        """An answer that waits for its abort, then gives two tokens."""
        until = time.monotonic() + 10
        while f"generate-tokens-{body['request_id']}" not in self.aborted and time.monotonic() < until:
            time.sleep(0.01)
        partial = {
            "finish_reason": "abort",
            "token_ids": [7, 7],
            "logprobs": {"content": [{"token_id": 7, "logprob": -0.5}] * 2},
            "weight_versions": [{"version": self.label, "start": 0, "end": 2}],
        }
        return 200, self.generation(body, **partial)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeVLLM

    def do_GET(self):
        self._serve()

    def do_POST(self):
        self._serve()

    def log_message(self, *args):
        pass

    def _serve(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.loads(raw) if raw else None
        parts = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        self.fake.seen.append((parts.path, query, body))
        wanted = self.fake.token
        if wanted is not None and self.headers.get("authorization") != f"Bearer {wanted}":
            status, said = 401, {"error": "no token"}
        else:
            rule = self.fake.on.get(parts.path)
            said = rule(body) if callable(rule) else rule
            status, said = said if said is not None else self.fake.answer(parts.path, query, body)
        if status is None:  # the server dies in the middle of it
            self.close_connection = True
            return
        data = said if isinstance(said, bytes) else json.dumps(said).encode()
        try:
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True


@pytest.fixture
def fakes():
    """``fakes(n)``: so many scripted servers."""
    made = []

    def some(n=1):
        new = [FakeVLLM() for _ in range(n)]
        made.extend(new)
        return new

    yield some
    for fake in made:
        fake.close()


@pytest.fixture
def fake(fakes):
    return fakes(1)[0]


@pytest.fixture
def on_servers(run):
    """``on_servers(fakes, work, **settings)``: what ``work(engine)`` returns, with a started engine on the servers."""

    def play(servers, work, **settings):
        async def main():
            engine = VLLMEngine(VLLMEngine.Settings(urls=tuple(server.url for server in servers), **settings))
            try:
                await engine.start()
                return await work(engine)
            finally:
                await engine.close()

        return run(main())

    return play


@pytest.fixture
def weights(tmp_path):
    """``weights(name)``: a folder with a file that looks like weights."""

    def folder(name="weights", content=b"weights"):
        path = tmp_path / name
        path.mkdir(exist_ok=True)
        (path / "model.safetensors").write_bytes(content)
        return path

    return folder
