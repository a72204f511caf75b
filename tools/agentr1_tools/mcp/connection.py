"""One live session with an MCP server, over a child process's pipes or over HTTP.

``MCPServer`` opens these. The client library ties a session to the task that opened it, so each has a task of its own
that opens it, waits, and closes it; calls may come from anywhere.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Seconds a session may take to close; the client library gives a child process about six before it kills it.
CLOSE_S = 10.0


@dataclass(frozen=True, slots=True)
class Endpoint:
    """How to reach a server: exactly one of ``command`` and ``url``."""

    #: Program and arguments; run as they are, never through a shell.
    command: tuple[str, ...] = ()
    url: str | None = None
    #: Variables the program sees beside the few harmless ones that the client library passes on.
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    #: Folder the program runs in.
    cwd: str | None = None
    #: File that takes what the program writes on standard error.
    log: str = os.devnull
    #: Headers of every HTTP request, such as ``Authorization``.
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        return self.url or " ".join(self.command)


class Connection:
    """A session that is open until ``close``, or until the server goes away.

    Args:
        endpoint: The server.
        deadline_s: Seconds it may take to open.
    """

    def __init__(self, endpoint: Endpoint, deadline_s: float) -> None:
        self.endpoint = endpoint
        self.deadline_s = deadline_s
        self.session: Any = None
        self._opened: asyncio.Future[None] | None = None
        self._leave = asyncio.Event()
        self._owner: asyncio.Task[None] | None = None

    @property
    def gone(self) -> asyncio.Task[None]:
        """Done once the session is no more; only after ``open``."""
        if self._owner is None:
            raise RuntimeError("the connection was not opened")
        return self._owner

    @property
    def alive(self) -> bool:
        """Whether its task still holds it."""
        return self._owner is not None and not self._owner.done() and not self._leave.is_set()

    async def open(self) -> None:
        """Connect and shake hands.

        Raises:
            ConnectionError: The server cannot be reached or does not speak the protocol within the deadline.
        """
        self._opened = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._hold(self._opened))
        try:
            async with asyncio.timeout(self.deadline_s):
                await asyncio.shield(self._opened)
        except TimeoutError as error:
            await self.close()
            raise ConnectionError(f"no answer within {self.deadline_s:g} seconds") from error
        except asyncio.CancelledError:
            await self.close()
            raise

    async def _hold(self, opened: asyncio.Future[None]) -> None:
        try:
            async with AsyncExitStack() as stack:
                self.session = await _connect(stack, self.endpoint)
                opened.set_result(None)
                await self._leave.wait()
        except BaseException as error:
            # The library's task groups raise groups; what the caller wants to read is the first thing that failed.
            if opened.done():
                if isinstance(error, asyncio.CancelledError):
                    raise
                return  # the server went away; the next call finds the session not alive
            opened.set_exception(ConnectionError(_first(error)))
            opened.exception()  # the caller may have gone at its deadline: then nobody reads it

    async def close(self) -> None:
        """End the session; a child process is ended with it. Harmless a second time."""
        self._leave.set()
        if self._owner is None:
            return
        if self.session is not None:
            await asyncio.wait({self._owner}, timeout=CLOSE_S)
        if not self._owner.done():
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=CLOSE_S)


async def _connect(stack: AsyncExitStack, endpoint: Endpoint) -> Any:
    from mcp import ClientSession

    if endpoint.url is None:
        from mcp.client.stdio import StdioServerParameters, stdio_client

        program, *arguments = endpoint.command
        parameters = StdioServerParameters(
            command=program, args=arguments, env=dict(endpoint.env) or None, cwd=endpoint.cwd
        )
        errors = stack.enter_context(await asyncio.to_thread(Path(endpoint.log).open, "a", encoding="utf-8"))
        streams = await stack.enter_async_context(stdio_client(parameters, errlog=errors))
    else:
        streams = await stack.enter_async_context(await _http_client(stack, endpoint))
    session = await stack.enter_async_context(ClientSession(streams[0], streams[1]))
    await session.initialize()
    return session


async def _http_client(stack: AsyncExitStack, endpoint: Endpoint) -> Any:
    """The streamable-HTTP transport; the HTTP library under it differs between the major versions of ``mcp``."""
    from mcp.client import streamable_http

    modern = getattr(streamable_http, "streamable_http_client", None)
    if modern is None:
        return streamable_http.streamablehttp_client(endpoint.url, headers=dict(endpoint.headers))
    if "headers" in inspect.signature(modern).parameters:
        return modern(endpoint.url, headers=dict(endpoint.headers))
    library = getattr(streamable_http, "httpx2", None) or streamable_http.httpx
    client = library.AsyncClient(headers=dict(endpoint.headers), timeout=library.Timeout(30.0, read=300.0))
    await stack.enter_async_context(client)
    return modern(endpoint.url, http_client=client)


def _first(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
