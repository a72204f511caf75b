"""Giving a server's GPU memory back while nothing is sampled, for a trainer on the same GPU.

The engine has one ``Memory`` where ``engine.colocate`` is set. Weights are kept in the host's memory meanwhile.
"""

from __future__ import annotations

import asyncio

from agentr1_core.errors import EngineError
from agentr1_core.serving import RequestRefused, ServerClient

#: A server may need a moment until all that was aborted has ended; it would not survive being asked too early.
_IDLE_TRIES, _IDLE_WAIT_S = 100, 0.1


class Memory:
    """Of one server that the engine started.

    Args:
        timeout_s: Seconds for one request.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        #: The run of the server whose memory was given back, counted in restarts.
        self._released: int | None = None

    async def release(self, client: ServerClient, run: int) -> None:
        """Give it back; harmless when that was done.

        Args:
            client: The server.
            run: How often it was started again.

        Raises:
            EngineError: Something is still sampled, or the server failed.
        """
        async with self._lock:
            if self._released == run:
                return
            await self._wait_idle(client)
            await client.post("/release_memory_occupation", {}, timeout_s=self._timeout_s)
            self._released = run

    async def resume(self, client: ServerClient, run: int) -> None:
        """Take it again; harmless when nothing was given back, or by a run of the server that is over."""
        async with self._lock:  # whoever comes while it is given back or taken again waits for the end of that
            if self._released == run:
                await client.post("/resume_memory_occupation", {}, timeout_s=self._timeout_s)
            self._released = None

    async def _wait_idle(self, client: ServerClient) -> None:
        for _ in range(_IDLE_TRIES):
            try:
                await client.post("/flush_cache", timeout_s=self._timeout_s)
                return
            except RequestRefused:
                await asyncio.sleep(_IDLE_WAIT_S)
        raise EngineError(f"{client.url} is still sampling, so that its memory cannot be given back.")
