"""A search tool over an HTTP service, with the requests of Agent-R1 or of Search-R1. Run files name it ``search_http``.

It contacts the address it is given and nothing else: redirects are not followed, proxies of the environment not used.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

from agentr1_core.errors import ConfigError
from agentr1_core.tool import BaseTool, ToolContext, ToolError, ToolResponse

#: Longest answer of the service that is read, in bytes.
MAX_BYTES = 4_000_000


class HTTPSearch(BaseTool):
    """Asks a search service.

    Args:
        url: Full address of the service, such as ``http://127.0.0.1:8000/search``.
        protocol: ``agent_r1`` (``GET ?query=…&top_k=…``) or ``search_r1`` (``POST {queries, topk, return_scores}``).
        top_k: How many passages are asked for.
        request_timeout_s: Seconds one request may take.
        retries: How often a request is repeated when the service cannot be reached or answers 502, 503 or 504.
        concurrency: Requests at the same time; more wait.
        headers_from: HTTP headers whose values are variables of this process: header to variable name.
        tool_name: What the model calls it.

    Raises:
        ConfigError: A setting that cannot be used.
    """

    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What to look for."}},
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        url: str,
        *,
        protocol: str = "agent_r1",
        top_k: int = 5,
        request_timeout_s: float = 10.0,
        retries: int = 2,
        concurrency: int = 16,
        headers_from: Mapping[str, str] | None = None,
        tool_name: str = "search",
    ) -> None:
        if not url.startswith(("http://", "https://")):
            raise ConfigError(f"`url` of the search tool is '{url}'.", "Give an http:// or https:// address.")
        if protocol not in ("agent_r1", "search_r1"):
            raise ConfigError(f"`protocol` of the search tool is '{protocol}'.", "Choose agent_r1 or search_r1.")
        if min(top_k, concurrency) < 1 or retries < 0 or not request_timeout_s > 0:
            raise ConfigError(
                "`top_k`, `concurrency` and `request_timeout_s` of the search tool must be positive.", "Correct them."
            )
        missing = [name for name in (headers_from or {}).values() if name not in os.environ]
        if missing:
            raise ConfigError(f"The search tool wants the variable {missing[0]}.", f"export {missing[0]}=...")
        self.name = tool_name
        self.description = "Search for passages that answer a question; the best matches come first."
        self.url = url
        self.protocol = protocol
        self.top_k = top_k
        self.request_timeout_s = request_timeout_s
        self.retries = retries
        self._headers = {header: os.environ[name] for header, name in (headers_from or {}).items()}
        self._slots = asyncio.Semaphore(concurrency)
        self._client: Any = None

    async def start(self) -> None:
        if self._client is None:
            import httpx

            self._client = httpx.AsyncClient(
                headers=self._headers, timeout=self.request_timeout_s, follow_redirects=False, trust_env=False
            )

    async def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResponse:
        if self._client is None:
            raise ToolError("The search tool was not started.")
        async with self._slots:
            answer = await self._ask(args["query"])
        try:
            hits = _hits(json.loads(answer))[: self.top_k]
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            raise ToolError("The search service answered in a form that is not understood.") from error
        documents = [document for document, _ in hits]
        scores = tuple(score for _, score in hits)
        return ToolResponse(json.dumps({"results": documents}, ensure_ascii=False), info={"scores": scores})

    async def _ask(self, query: str) -> bytes:
        import httpx

        if self.protocol == "agent_r1":
            request: dict[str, Any] = {"method": "GET", "params": {"query": query, "top_k": self.top_k}}
        else:
            body = {"queries": [query], "topk": self.top_k, "return_scores": True}
            request = {"method": "POST", "json": body}
        problem = ""
        for attempt in range(self.retries + 1):
            if attempt:
                await asyncio.sleep(0.1 * 2**attempt)
            try:
                async with asyncio.timeout(self.request_timeout_s), self._client.stream(url=self.url, **request) as got:
                    if got.status_code == 200:
                        return await _read(got)
                    problem = f"it answered with status {got.status_code}"
                    if got.status_code not in (502, 503, 504):
                        break
            except (httpx.TransportError, TimeoutError) as error:
                problem = type(error).__name__
        raise ToolError(f"The search service cannot be used: {problem}.")


async def _read(response: Any) -> bytes:
    data = b""
    async for part in response.aiter_bytes():
        data += part
        if len(data) > MAX_BYTES:
            raise ToolError(f"The search service answered with more than {MAX_BYTES} bytes.")
    return data


def _hits(answer: Any) -> list[tuple[str, float | None]]:
    """Documents with scores from any form the services answer in."""
    if "query_results" in answer:
        found = answer["query_results"][0]["results"]
    elif "results" in answer:
        found = answer["results"]
    else:
        found = answer["result"][0]
    return [_hit(item) for item in found]


def _hit(item: Any) -> tuple[str, float | None]:
    score = item.get("score") if isinstance(item, Mapping) else None
    document = item.get("document", item) if isinstance(item, Mapping) else item
    if isinstance(document, Mapping):
        text = str(document.get("contents") or document.get("text") or "")
        title = document.get("title")
        document = f"{title} {text}" if title else text
    return str(document), None if score is None else float(score)
