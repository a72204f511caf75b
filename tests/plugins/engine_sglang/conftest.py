"""A scripted HTTP server that speaks SGLang's routes, for faults that a real one cannot be made to show.

What it answers when nothing is wrong was recorded from SGLang 0.5.23 on CPU; ``recorded`` has the answers with their
fields as they were, shortened to those that the engine reads and a few beside them.
"""

from __future__ import annotations

import copy
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from agentr1_engine_sglang import SGLangEngine

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
WEIGHT_ROUTES = ("/begin_weight_update", "/end_weight_update", "/init_weights_update_group")


class FakeSGLang:
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
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True).start()

    def close(self):
        self._http.shutdown()
        self._http.server_close()

    def paths(self):
        return [path for path, _ in self.seen]

    def calls(self):
        """Actions that were asked for, those of the check at the start left out."""
        return [body for path, body in self.seen if path == "/generate" and body["rid"] != "agentr1-check"]

    def answer(self, path, body):
        if path == "/generate":
            return 200, self.generation(body)
        if path == "/abort_request":
            self.aborted.add(body.get("rid", "all"))
        if "weight_version" in (body or {}):
            self.label = body["weight_version"]
        if path == "/model_info":
            return 200, {**RECORDED["model_info"], "weight_version": self.label}
        if path.startswith("/update_weights") or path in WEIGHT_ROUTES:
            return 200, {"success": True, "message": "Success"}
        return 200, RECORDED.get(path.lstrip("/"), {})

    def generation(self, body, **changes):
        """As recorded, drawn out to ``max_new_tokens``, each token with log-prob -0.5."""
        if body["rid"] == "agentr1-check":
            kind = (
                "top_k" if body.get("return_sampling_mask") else f"temperature_{body['sampling_params']['temperature']}"
            )
            return copy.deepcopy(RECORDED["generate"][kind])
        answer = copy.deepcopy(RECORDED["generate"]["plain"])
        n = body["sampling_params"]["max_new_tokens"]
        answer["output_ids"] = [7] * n
        meta = answer["meta_info"]
        meta["id"] = body["rid"]
        meta["finish_reason"] = {"type": "length", "length": n}
        meta["output_token_logprobs"] = [[-0.5, 7, None]] * n
        meta["weight_versions"] = [{"version": self.label, "start": 0, "end": n}]
        if body.get("return_sampling_mask"):
            meta["output_token_sampling_logprobs"] = [-0.25] * n
        answer["output_ids"] = changes.pop("output_ids", answer["output_ids"])
        meta.update(changes)
        return answer

    def until_aborted(self, body):
        """An answer that waits for its abort, then gives two tokens."""
        until = time.monotonic() + 10
        while body["rid"] not in self.aborted and time.monotonic() < until:
            time.sleep(0.01)
        partial = {
            "output_ids": [7, 7],
            "finish_reason": {"type": "abort", "message": "Aborted by AbortReq."},
            "output_token_logprobs": [[-0.5, 7, None]] * 2,
            "weight_versions": [{"version": self.label, "start": 0, "end": 2}],
        }
        return 200, self.generation(body, **partial)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    fake: FakeSGLang

    def do_GET(self):
        self._serve()

    def do_POST(self):
        self._serve()

    def log_message(self, *args):
        pass

    def _serve(self):
        raw = self.rfile.read(int(self.headers.get("content-length") or 0))
        body = json.loads(raw) if raw else None
        path = urlsplit(self.path).path
        self.fake.seen.append((path, body))
        wanted = self.fake.token
        if wanted is not None and self.headers.get("authorization") != f"Bearer {wanted}":
            status, said = 401, {"error": "Unauthorized"}
        else:
            rule = self.fake.on.get(path)
            said = rule(body) if callable(rule) else rule
            status, said = said if said is not None else self.fake.answer(path, body)
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
        new = [FakeSGLang() for _ in range(n)]
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
            engine = SGLangEngine(SGLangEngine.Settings(urls=tuple(server.url for server in servers), **settings))
            try:
                await engine.start()
                return await work(engine)
            finally:
                await engine.close()

        return run(main())

    return play


@pytest.fixture
def weights(tmp_path):
    """``weights(shape)``: a folder with a safetensors file of one tensor."""

    def folder(shape=(2, 3)):
        import numpy as np
        from safetensors.numpy import save_file

        path = tmp_path / f"weights-{len(list(tmp_path.iterdir()))}"
        path.mkdir()
        save_file({"embed": np.zeros(shape, np.float32)}, path / "model.safetensors")
        return path

    return folder
