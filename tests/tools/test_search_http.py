"""The HTTP search tool against a real server: both protocols, and services that fail."""

import asyncio
import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from agentr1_core.errors import ConfigError
from agentr1_core.testing.tool_kit import ToolKit
from agentr1_core.tool import ToolContext, ToolOutcome, call_tool
from agentr1_tools.search_http import HTTPSearch

DOCUMENTS = ["Paris is the capital of France.", "Rome is the capital of Italy."]


SEEN = []


class Service(BaseHTTPRequestHandler):
    """Answers as its path says."""

    failures = 0

    def do_GET(self):
        parts = urlsplit(self.path)
        query = {key: value[0] for key, value in parse_qs(parts.query).items()}
        SEEN.append((parts.path, query, dict(self.headers)))
        hits = [{"document": text, "score": 1.0 - i} for i, text in enumerate(DOCUMENTS)]
        if parts.path == "/search":
            self.answer({"query_results": [{"query": query["query"], "results": hits[: int(query["top_k"])]}]})
        elif parts.path == "/formatted":
            self.answer({"results": DOCUMENTS})
        elif parts.path == "/sometimes":
            type(self).failures += 1
            self.answer({"results": DOCUMENTS}, status=503 if type(self).failures < 3 else 200)
        elif parts.path == "/slow":
            time.sleep(1)
            self.answer({"results": DOCUMENTS})
        elif parts.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "/search?query=x&top_k=1")
            self.end_headers()
        elif parts.path == "/huge":
            self.answer({"results": ["x" * 5_000_000]})
        elif parts.path == "/strange":
            self.answer(["what?"])
        else:
            self.answer({}, status=404)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        SEEN.append((self.path, asked, dict(self.headers)))
        document = {"contents": '"Paris"\nThe capital.', "id": "1"}
        self.answer({"result": [[{"document": document, "score": 0.5}] * asked["topk"] for _ in asked["queries"]]})

    def answer(self, value, status=200):
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        try:
            self.wfile.write(data)
        except OSError:
            pass  # the client had enough

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def ask(url, query="capital", **settings):
    async def run():
        tool = HTTPSearch(url, **settings)
        await tool.start()
        try:
            return await call_tool({"search": tool}, "search", {"query": query}, ToolContext())
        finally:
            await tool.close()

    return asyncio.run(asyncio.wait_for(run(), 30))


def test_the_requests_and_answers_of_agent_r1(address):
    result = ask(f"{address}/search", "capital of Italy & France", top_k=1)
    assert SEEN[-1][:2] == ("/search", {"query": "capital of Italy & France", "top_k": "1"})
    assert json.loads(result.response.text) == {"results": DOCUMENTS[:1]}
    assert result.response.info["scores"] == (1.0,)
    assert json.loads(ask(f"{address}/formatted").response.text) == {"results": DOCUMENTS}


def test_the_requests_and_answers_of_search_r1(address):
    result = ask(f"{address}/retrieve", protocol="search_r1", top_k=2)
    assert SEEN[-1][:2] == ("/retrieve", {"queries": ["capital"], "topk": 2, "return_scores": True})
    assert json.loads(result.response.text) == {"results": ['"Paris"\nThe capital.'] * 2}
    assert result.response.info["scores"] == (0.5, 0.5)


def test_a_busy_service_is_asked_again(address):
    Service.failures = 0
    assert ask(f"{address}/sometimes").outcome is ToolOutcome.OK
    assert Service.failures == 3
    Service.failures = 0
    assert "status 503" in ask(f"{address}/sometimes", retries=0).response.text


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/redirect", "status 302"),
        ("/huge", "more than 4000000 bytes"),
        ("/strange", "not understood"),
        ("/nowhere", "status 404"),
    ],
)
def test_what_goes_wrong_is_told_to_the_model(address, path, says):
    result = ask(f"{address}{path}", request_timeout_s=30, retries=0)
    assert result.outcome is ToolOutcome.FAILED
    assert says in result.response.text


def test_a_service_that_is_too_slow_meets_its_deadline(address):
    assert "TimeoutError" in ask(f"{address}/slow", request_timeout_s=0.3, retries=0).response.text


def test_nobody_listens():
    assert "ConnectError" in ask("http://127.0.0.1:9/search", retries=1).response.text


def test_secrets_come_from_the_environment_and_proxies_do_not(address, monkeypatch):
    monkeypatch.setenv("SEARCH_TOKEN", "Bearer hunter2")
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert ask(f"{address}/search", headers_from={"Authorization": "SEARCH_TOKEN"}).outcome is ToolOutcome.OK
    assert SEEN[-1][2]["Authorization"] == "Bearer hunter2"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"url": "file:///etc/passwd"}, "http:// or https://"),
        ({"url": "http://x", "protocol": "soap"}, "agent_r1 or search_r1"),
        ({"url": "http://x", "top_k": 0}, "must be positive"),
        ({"url": "http://x", "headers_from": {"A": "NOT_SET_ANYWHERE"}}, "export NOT_SET_ANYWHERE"),
    ],
)
def test_wrong_settings_are_named(settings, says):
    with pytest.raises(ConfigError) as refused:
        HTTPSearch(**settings)
    assert says in str(refused.value)


class TestHTTPSearchKeepsTheContract(ToolKit):
    @pytest.fixture(autouse=True)
    def with_address(self, address):
        self.address = address

    def make_tool(self):
        return HTTPSearch(f"{self.address}/search")

    def good_calls(self):
        return [{"query": "capital"}, {"query": "x" * 500}]
