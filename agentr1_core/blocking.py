"""One persistent event loop for synchronous callers, such as a trainer that collects between two updates.

Engines and environments keep state that belongs to their loop, so every call of one run must use the same one.
Ctrl-C cancels what runs and waits until it has cleaned up.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class BlockingLoop:
    """Runs coroutines to their end from synchronous code.

    The loop runs in the calling thread. Where that thread already runs a loop (a notebook), a thread of its own
    is used from the first call on.
    """

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._thread: _LoopThread | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run to the end and return the result; raises what it raises."""
        if self._thread is None and self._runner is None:
            if _loop_is_running():
                self._thread = _LoopThread()
            else:
                self._runner = asyncio.Runner()
        if self._thread is not None:
            return self._thread.run(work)
        if self._runner is None:
            raise RuntimeError("The loop is closed.")
        return self._runner.run(work)

    def close(self) -> None:
        """Cancel what is left and close the loop; the next ``run`` would open a new one."""
        if self._runner is not None:
            self._runner.close()
            self._runner = None
        if self._thread is not None:
            self._thread.close()
            self._thread = None


def _loop_is_running() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _LoopThread:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="agentr1-loop", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            with contextlib.suppress(BaseException):  # the interrupt is what the caller must see
                asyncio.run_coroutine_threadsafe(self._settle(), self._loop).result(timeout=60)
            raise

    def close(self) -> None:
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(self._settle(), self._loop).result(timeout=60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=60)
        self._loop.close()

    @staticmethod
    async def _settle() -> None:
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
