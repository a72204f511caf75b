"""A server that an engine starts itself, watches, starts again after a crash, and ends.

Engine plugins say how the command is made and how a ready server is recognised. Progress of slow starts is said on
standard error, since loading a model can take minutes. What the server itself says goes to its log file.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Awaitable, Callable

from agentr1_core.errors import EngineError
from agentr1_core.serving.process import ServerProcess

#: Seconds between two looks at the process, and between two lines about a start in progress.
LOOK_S, SAY_S = 0.5, 15.0


def cause_of(error: BaseException) -> str:
    """What went wrong, in one line: the problem that an ``EngineError`` names, else the error itself."""
    return error.problem if isinstance(error, EngineError) else f"{type(error).__name__}: {error}"


class ManagedServer:
    """Starts and restarts one server.

    Args:
        name: Of the engine, for messages.
        make: Makes the process, not started.
        is_ready: Whether the server answers; an ``EngineError`` it raises ends the start with that cause.
        startup_timeout_s: Seconds from the start until it must be ready.
        max_restarts: How often it is started again after it ended by itself.
    """

    def __init__(
        self,
        name: str,
        make: Callable[[], ServerProcess],
        is_ready: Callable[[], Awaitable[bool]],
        *,
        startup_timeout_s: float,
        max_restarts: int,
    ) -> None:
        self._name = name
        self._make = make
        self._is_ready = is_ready
        self._startup_timeout_s = startup_timeout_s
        self._max_restarts = max_restarts
        self._process: ServerProcess | None = None
        self._watching: asyncio.Task[None] | None = None
        self.restarts = 0

    @property
    def runs(self) -> bool:
        """Whether its process is alive."""
        return self._process is not None and self._process.runs

    async def start(self) -> None:
        """Start it and wait until it is ready; when that fails, what was started is ended.

        Raises:
            EngineError: It ended, or is not ready in time; the message has the cause and the log's path.
        """
        process = self._process = self._make()
        process.start()
        begin = said = time.monotonic()
        try:
            while not await self._is_ready():
                now = time.monotonic()
                if not process.runs:
                    raise EngineError(
                        f"The {self._name} server ended while starting (exit code {process.exit_code}): "
                        f"{process.cause()}",
                        f"Its log is {process.log}",
                    )
                if now - begin > self._startup_timeout_s:
                    raise EngineError(
                        f"The {self._name} server is not ready after {self._startup_timeout_s:.0f} s; it last said: "
                        f"{process.last_line()}",
                        f"Raise `engine.startup_timeout_s`, or look into its log: {process.log}",
                    )
                if now - said > SAY_S:
                    said = now
                    self._say(f"starting for {now - begin:.0f} s: {process.last_line()[-100:]}")
                await asyncio.sleep(LOOK_S)
        except BaseException:  # cancellation included: nothing may be left running
            await process.stop()
            raise
        self._say(f"ready after {time.monotonic() - begin:.0f} s; log: {process.log}")

    def watch(
        self, lost: Callable[[str], None], back: Callable[[], Awaitable[None]], over: Callable[[EngineError], None]
    ) -> None:
        """Start it again whenever it ends by itself.

        Args:
            lost: Told the cause when it has ended.
            back: Awaited once it is ready again, to give it the current weights.
            over: Told the error when it will not come back.
        """
        self._watching = asyncio.create_task(self._watch(lost, back, over))

    async def stop(self) -> None:
        """End it and stop watching; idempotent."""
        watching, self._watching = self._watching, None
        try:
            if watching is not None:
                watching.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
        finally:
            process, self._process = self._process, None
            if process is not None:
                await process.stop()

    async def _watch(
        self, lost: Callable[[str], None], back: Callable[[], Awaitable[None]], over: Callable[[EngineError], None]
    ) -> None:
        while True:
            process = self._process
            if process is None:
                return
            if process.runs:
                await asyncio.sleep(LOOK_S)
                continue
            cause = f"the server ended (exit code {process.exit_code}): {process.cause()}; log: {process.log}"
            lost(cause)
            if self.restarts >= self._max_restarts:
                over(EngineError(f"The {self._name} server is gone after {self.restarts} restarts: {cause}"))
                return
            self.restarts += 1
            self._say(f"{cause}; restart {self.restarts} of {self._max_restarts}")
            try:
                await self.start()
                await back()
            except Exception as error:  # a file that is gone or a full disk too: who waits must not wait for nobody
                if self._process is not None:  # it may run and yet be of no use; the next round starts another one
                    await self._process.stop()
                self._say(f"the restart failed: {cause_of(error)}")

    def _say(self, what: str) -> None:
        print(f"[{self._name} server] {what}", file=sys.stderr, flush=True)
