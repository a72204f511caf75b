"""JSON over HTTP to one inference server, with failures sorted by what a caller can do about them.

Engine plugins call it. It never retries: whether another server can answer, or the same one later, is for the caller
to decide.
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx

from agentr1_core.errors import EngineError

#: Seconds for a connection to be made.
CONNECT_S = 10.0
#: Seconds after which an idle connection is not used again: servers close theirs (uvicorn after 5), and a request that
#: meets the closing is lost.
IDLE_S = 2.0


class ServerUnreachable(EngineError):
    """No connection, or it broke: the server is gone or going. Another one may answer."""


class ServerTimeout(EngineError):
    """The server took longer than it may."""


class ServerFault(EngineError):
    """The server answered that it failed, or with something that is no answer."""


class RequestRefused(EngineError):
    """The server answered that the request is wrong; asking again will not help.

    Args:
        status: The HTTP status.
    """

    def __init__(self, problem: str, status: int) -> None:
        self.status = status
        super().__init__(problem)


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine's own loopback interface."""
    host = urlsplit(url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class ServerClient:
    """One server, by its address.

    Args:
        url: Such as ``http://127.0.0.1:8000``.
        token: Sent as a bearer token with every request.
        timeout_s: Seconds for an answer, where a request names no others.
    """

    def __init__(self, url: str, *, token: str | None = None, timeout_s: float = 600.0) -> None:
        self.url = url.rstrip("/")
        self._timeout_s = timeout_s
        self._http = httpx.AsyncClient(
            base_url=self.url,
            headers={} if token is None else {"Authorization": f"Bearer {token}"},
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_S),
            trust_env=not is_loopback(url),  # a proxy cannot reach this machine's loopback interface
        )

    async def get(self, path: str, *, timeout_s: float | None = None) -> Any:
        """The JSON answer to a GET; ``None`` for an empty one. Raises as ``post`` does."""
        return await self._ask("GET", path, None, {}, timeout_s)

    async def post(
        self,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        as_json: bool = True,
    ) -> Any:
        """The JSON answer to a POST, or its text unless ``as_json``; ``None`` for an empty one.

        Raises:
            ServerUnreachable, ServerTimeout, ServerFault, RequestRefused: Each an ``EngineError``.
        """
        return await self._ask("POST", path, body, query or {}, timeout_s, as_json)

    async def close(self) -> None:
        """Close all connections; idempotent."""
        await self._http.aclose()

    async def _ask(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, str],
        timeout_s: float | None,
        as_json: bool = True,
    ) -> Any:
        wait = self._timeout_s if timeout_s is None else timeout_s
        timeout = httpx.Timeout(wait, connect=min(wait, CONNECT_S), pool=None)
        where = f"{self.url}{path}"
        try:
            answer = await self._http.request(method, path, json=body, params=query, timeout=timeout)
        except httpx.ConnectTimeout as error:
            raise ServerUnreachable(f"{where}: no connection within {CONNECT_S:.0f} s.") from error
        except httpx.TimeoutException as error:
            raise ServerTimeout(f"{where}: no answer within {wait:.0f} s.") from error
        except httpx.HTTPError as error:
            raise ServerUnreachable(f"{where}: {type(error).__name__}: {error}".rstrip(": ")) from error
        except RuntimeError as error:  # httpx: the client was closed while the call was about to start
            raise ServerUnreachable(f"{where}: {error}") from error
        if answer.status_code >= 500:
            raise ServerFault(f"{where} failed with status {answer.status_code}: {_detail(answer)}")
        if answer.status_code >= 400:
            raise RequestRefused(
                f"{where} refused the request with status {answer.status_code}: {_detail(answer)}", answer.status_code
            )
        if not answer.content:
            return None
        if not as_json:
            return answer.text
        try:
            return answer.json()
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ServerFault(f"{where} answered with something that is no JSON: {answer.text[:200]!r}") from error


def _detail(answer: httpx.Response) -> str:
    """The server's own words, from the shapes that FastAPI and OpenAI-like servers use."""
    try:
        said = answer.json()
    except (json.JSONDecodeError, UnicodeDecodeError):
        return answer.text[:300]
    for key in ("error", "detail", "message"):
        if isinstance(said, dict) and key in said:
            said = said[key]
    return str(said)[:300]
