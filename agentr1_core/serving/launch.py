"""How a server is started, and how the servers of an engine are opened: one of its own, or some that run already.

Engine plugins plan the ``Launch`` and say how a server is checked; what happens on failure stands here once.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from agentr1_core.errors import ConfigError
from agentr1_core.serving.client import ServerClient
from agentr1_core.serving.engine import Servers, own_share
from agentr1_core.serving.fleet import Member
from agentr1_core.serving.managed import ManagedServer
from agentr1_core.serving.process import ServerProcess
from agentr1_core.serving.settings import ServerSettings

#: Variables of the trainer's environment that would change which libraries the server loads.
_NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_PRELOAD")

#: Finds out whether a server can do all that its engine needs; its longest context in tokens.
Check = Callable[[ServerClient], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start the server; the same each time, so that one that ended can be started again."""

    command: tuple[str, ...]
    env: Mapping[str, str]
    log: Path
    url: str
    token: str

    def process(self) -> ServerProcess:
        """A new process, not started."""
        return ServerProcess(self.command, self.env, self.log)


def server_environment(settings: ServerSettings, **defaults: str) -> dict[str, str]:
    """The environment of a server: this one's without what would change its libraries, then ``defaults``, then what the
    settings say."""
    env = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    env |= {**defaults, **settings.env}
    if settings.threads is not None:
        env["OMP_NUM_THREADS"] = str(settings.threads)
    return env


def log_file(run_dir: Path | None, name: str) -> Path:
    """The log of the server of engine ``name``: in the run's folder, else a new temporary file."""
    if run_dir is not None:
        return run_dir / f"{name}.log"
    handle, path = tempfile.mkstemp(prefix=f"agentr1-{name}-", suffix=".log")
    os.close(handle)
    return Path(path)


async def start_server(
    name: str,
    launch: Launch,
    settings: ServerSettings,
    is_ready: Callable[[ServerClient], Awaitable[bool]],
    check: Check,
) -> Servers:
    """Start a server, wait until it is ready and check it; whatever fails, nothing stays running.

    Args:
        name: Of the engine, for messages.
        launch: How.
        settings: Of the engine.
        is_ready: Whether it answers.
        check: Whether it can do what is needed.

    Raises:
        EngineError: With the cause.
    """
    client = ServerClient(launch.url, token=launch.token, timeout_s=settings.request_timeout_s)
    managed = ManagedServer(
        name,
        launch.process,
        lambda: is_ready(client),
        startup_timeout_s=settings.startup_timeout_s,
        max_restarts=settings.max_restarts,
    )
    try:
        await managed.start()
        context = await check(client)
    except BaseException:
        await client.close()
        await managed.stop()
        raise
    return Servers([Member(client)], managed, context)


async def use_servers(settings: ServerSettings, check: Check) -> Servers:
    """Check the servers in ``settings.urls`` that are this training process's own.

    Args:
        settings: Of the engine.
        check: Whether a server can do what is needed.

    Raises:
        ConfigError: One is on another machine without a token, or there are too few.
        EngineError: From ``check``.
    """
    token = os.environ.get(settings.token_env)
    if settings.remote_urls and not token:
        raise ConfigError(
            f"`engine.urls`: {settings.remote_urls[0]} is on another machine, and no token guards it.",
            f"Start the server with --api-key and set {settings.token_env}, or reach it through an SSH tunnel.",
        )
    clients = [ServerClient(url, token=token, timeout_s=settings.request_timeout_s) for url in own_share(settings.urls)]
    try:
        contexts = await asyncio.gather(*(check(client) for client in clients))
    except BaseException:
        for client in clients:
            await client.close()
        raise
    return Servers([Member(client) for client in clients], None, min(contexts))
