"""Any MCP server as tools: run files name it ``mcp`` and say how to reach it.

The server is asked for its tools once, when the run starts. Each episode then has its own session with it, opened at
the first call and closed when the episode ends, so that a server which keeps state keeps it apart for each episode.
No shell is ever involved, and nothing but the named program or address is contacted.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from agentr1_core.errors import ConfigError, PluginError
from agentr1_core.tool import BaseTool, ToolContext, ToolError, ToolResponse, ToolSource
from agentr1_tools.mcp.connection import Connection, Endpoint

#: Programs that would run whatever text they are given.
SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "fish", "csh", "tcsh", "cmd", "cmd.exe", "powershell", "pwsh"})


class MCPServer(ToolSource):
    """An MCP server whose tools the agent may call.

    Args:
        command: Program and arguments of a server that talks over its pipes, as a list.
        url: Address of a server that talks streamable HTTP, instead of ``command``.
        env: Variables for the program.
        env_from: Names of variables of this process to hand on, so that secrets stay out of run files.
        cwd: Folder the program runs in.
        log: File that takes what the program writes on standard error; thrown away when unset.
        headers: HTTP headers of every request.
        headers_from: HTTP headers whose values are variables of this process: header to variable name.
        include: Only these tools of the server; all when unset.
        prefix: Put before each tool's name, to keep two servers apart.
        session: ``episode`` for a session of its own for each episode, ``run`` for one that all share.
        call_timeout_s: Seconds one call may take.
        connect_timeout_s: Seconds a session may take to open.
        reconnect: How often one call is repeated in a new session when its session was lost on the way. The new one
            knows nothing of the old one; set 0 where a call must never happen twice.
        allow_shell: Let ``command`` be a shell.

    Raises:
        ConfigError: Settings that contradict each other, or a variable that is not set.
    """

    def __init__(
        self,
        *,
        command: Sequence[str] = (),
        url: str | None = None,
        env: Mapping[str, str] | None = None,
        env_from: Sequence[str] = (),
        cwd: str | None = None,
        log: str = os.devnull,
        headers: Mapping[str, str] | None = None,
        headers_from: Mapping[str, str] | None = None,
        include: Sequence[str] | None = None,
        prefix: str = "",
        session: str = "episode",
        call_timeout_s: float = 30.0,
        connect_timeout_s: float = 30.0,
        reconnect: int = 1,
        allow_shell: bool = False,
    ) -> None:
        if isinstance(command, str):
            raise ConfigError(
                f"`command` of the mcp tools is the text {command!r}.",
                "Write it as a list, program first: [npx, -y, some-server]. No shell reads it.",
            )
        if bool(command) == bool(url):
            raise ConfigError("The mcp tools need either `command` or `url`.", "Set exactly one of them.")
        if command and os.path.basename(command[0]).lower() in SHELLS and not allow_shell:
            raise ConfigError(
                f"`command` of the mcp tools starts the shell '{command[0]}'.",
                "Name the server's program itself, or set `allow_shell: true` if you trust every argument.",
            )
        if url and not url.startswith(("http://", "https://")):
            raise ConfigError(f"`url` of the mcp tools is '{url}'.", "Give an http:// or https:// address.")
        if session not in ("episode", "run"):
            raise ConfigError(f"`session` of the mcp tools is '{session}'.", "Choose `episode` or `run`.")
        self.endpoint = Endpoint(
            command=tuple(command),
            url=url,
            env={**(env or {}), **{name: _variable(name) for name in env_from}},
            cwd=cwd,
            log=log,
            headers={**(headers or {}), **{header: _variable(name) for header, name in (headers_from or {}).items()}},
        )
        self.include = None if include is None else frozenset(include)
        self.prefix = prefix
        self.per_episode = session == "episode"
        self.call_timeout_s = call_timeout_s
        self.connect_timeout_s = connect_timeout_s
        self.reconnect = reconnect
        self._shared: dict[Any, asyncio.Future[Connection]] = {}
        self._open: set[Connection] = set()

    async def start(self) -> Sequence[BaseTool]:
        """Connect once and ask for the tools; the session is kept only where all episodes share one.

        Raises:
            PluginError: ``mcp`` is missing, the server cannot be reached, or a tool in ``include`` is not there.
        """
        try:
            import mcp  # noqa: F401
        except ImportError as error:
            raise PluginError(
                f"The mcp tools cannot import mcp: {error}.", "pip install 'agentr1-tools[mcp]'"
            ) from error
        try:
            connection = await self._connect()
            async with asyncio.timeout(self.connect_timeout_s):
                found = await _list_tools(connection.session)
        except (ConnectionError, TimeoutError) as error:
            await self.close()
            raise PluginError(
                f"The MCP server '{self.endpoint}' cannot be used: {error}", "Check its command or address by hand."
            ) from error
        except BaseException:
            await self.close()
            raise
        missing = (self.include or frozenset()) - {tool.name for tool in found}
        if missing:
            await self.close()
            raise PluginError(
                f"The MCP server '{self.endpoint}' has no tool '{min(missing)}'.",
                f"It has: {', '.join(sorted(tool.name for tool in found))}.",
            )
        if self.per_episode:
            await self._discard(connection)
        else:
            ready = asyncio.get_running_loop().create_future()
            ready.set_result(connection)
            self._shared[self] = ready
        return [MCPTool(self, tool) for tool in found if self.include is None or tool.name in self.include]

    async def close(self) -> None:
        """Close every session that is still open."""
        self._shared.clear()
        await asyncio.gather(*(self._discard(connection) for connection in tuple(self._open)))

    async def call(self, name: str, arguments: dict[str, Any], ctx: ToolContext) -> Any:
        """One call, in the episode's session; the result is the protocol's own.

        Raises:
            ToolError: The server is gone and cannot be reached again.
        """
        for _ in range(self.reconnect + 1):
            connection = await self._session(ctx)
            calling = asyncio.ensure_future(connection.session.call_tool(name, arguments))
            try:
                # A server that dies does not always fail the call: watch both.
                await asyncio.wait({calling, connection.gone}, return_when=asyncio.FIRST_COMPLETED)
                if calling.done():
                    return calling.result()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if not _means_lost(error) and connection.alive:
                    raise ToolError(str(error)) from error
            finally:
                calling.cancel()
            self._forget(ctx, connection)
            await self._discard(connection)
        raise ToolError(f"the connection was lost {self.reconnect + 1} times")

    async def _session(self, ctx: ToolContext) -> Connection:
        """The episode's session, opened by whichever call comes first."""
        held: Any = ctx.state if self.per_episode else self._shared
        while True:
            opening = held.get(self)
            if opening is None:
                opening = held[self] = asyncio.get_running_loop().create_future()
                try:
                    connection = await self._connect()
                except BaseException as error:
                    held.pop(self, None)
                    opening.set_exception(ToolError("the server cannot be reached"))
                    opening.exception()
                    if isinstance(error, ConnectionError):
                        raise ToolError(f"the server cannot be reached: {error}") from error
                    raise
                opening.set_result(connection)
                if self.per_episode:
                    ctx.cleanup.push_async_callback(self._discard, connection)
                return connection
            connection = await asyncio.shield(opening)
            if connection.alive:
                return connection
            self._forget(ctx, connection)

    def _forget(self, ctx: ToolContext, connection: Connection) -> None:
        held: Any = ctx.state if self.per_episode else self._shared
        opening = held.get(self)
        if opening is not None and opening.done() and not opening.exception() and opening.result() is connection:
            del held[self]

    async def _connect(self) -> Connection:
        connection = Connection(self.endpoint, self.connect_timeout_s)
        self._open.add(connection)
        try:
            await connection.open()
        except BaseException:
            self._open.discard(connection)
            raise
        return connection

    async def _discard(self, connection: Connection) -> None:
        self._open.discard(connection)
        await connection.close()


class MCPTool(BaseTool):
    """One tool of a server; made by ``MCPServer``."""

    def __init__(self, server: MCPServer, offered: Any) -> None:
        self.server = server
        self.remote_name = offered.name
        self.name = re.sub(r"\W", "_", f"{server.prefix}{offered.name}")  # models call tools by identifiers
        self.description = offered.description or offered.name
        # mcp 2.x renamed inputSchema.
        self.parameters = getattr(offered, "input_schema", None) or getattr(offered, "inputSchema", None) or {}
        self.timeout_s = server.call_timeout_s

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResponse:
        result = await self.server.call(self.remote_name, args, ctx)
        text = "\n".join(_text(part) for part in result.content)
        # mcp 2.x renamed isError and structuredContent.
        if getattr(result, "is_error", None) or getattr(result, "isError", None):
            raise ToolError(text)
        structured = getattr(result, "structured_content", None) or getattr(result, "structuredContent", None)
        return ToolResponse(text, info={} if structured is None else {"structured": structured})


async def _list_tools(session: Any) -> list[Any]:
    found: list[Any] = []
    seen: set[str] = set()
    page = await session.list_tools()
    while True:
        found.extend(page.tools)
        cursor = getattr(page, "next_cursor", None) or getattr(page, "nextCursor", None)
        if not cursor or cursor in seen:
            return found
        seen.add(cursor)
        from mcp import types

        page = await session.list_tools(params=types.PaginatedRequestParams(cursor=cursor))


def _text(part: Any) -> str:
    if part.type == "text":
        return str(part.text)
    if part.type == "resource" and getattr(part.resource, "text", None) is not None:
        return str(part.resource.text)
    if part.type == "resource_link":
        return str(part.uri)
    return f"[{part.type}]"


def _means_lost(error: Exception) -> bool:
    """Whether a failed call says that the session is no more, in whatever version of the library."""
    name, text = type(error).__name__, str(error).lower()
    return name in {"ClosedResourceError", "BrokenResourceError", "ConnectError", "EndOfStream"} or (
        "connection closed" in text or "session terminated" in text or "session not found" in text
    )


def _variable(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(f"The mcp tools want the variable {name}, which is not set.", f"export {name}=...")
    return value
