"""Code in pydantic-monty: an interpreter of its own for a subset of Python, without files, network or processes.

The default of the ``python`` tool. It runs in worker processes with limits on time and memory; the standard modules
it knows are few (``math``, ``re``, ``json``, ``datetime`` and the like), third-party ones do not exist.
"""

from __future__ import annotations

import asyncio
import datetime
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from agentr1_core.errors import PluginError
from agentr1_tools.python.sandbox import Limits, Run, Sandbox

#: Every programme finds this moment, so that an episode can be played again.
NOW = datetime.datetime(2000, 1, 1, tzinfo=datetime.UTC)


class MontySandbox(Sandbox):
    """Worker processes of pydantic-monty.

    Args:
        limits: What one call may use.
        workers: Programmes that run at the same time; more wait.
    """

    def __init__(self, limits: Limits, *, workers: int = 2) -> None:
        self.limits = limits
        self.workers = workers
        self._pool: Any = None
        self._threads: ThreadPoolExecutor | None = None

    async def start(self) -> None:
        if self._pool is not None:
            return
        try:
            from pydantic_monty import Monty, MontyError
        except ImportError as error:
            raise PluginError(
                f"The python tool cannot import pydantic-monty: {error}.",
                "pip install pydantic-monty, or set `sandbox: bubblewrap`.",
            ) from error
        try:
            pool = Monty(max_processes=self.workers, request_timeout=self.limits.time_s + 5.0)
            await asyncio.to_thread(pool.__enter__)
        except (MontyError, OSError) as error:
            raise PluginError(
                f"pydantic-monty does not run here: {type(error).__name__}: {error}", "Set `sandbox: bubblewrap`."
            ) from error
        self._pool = pool
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="monty")

    async def run(self, code: str) -> Run:
        if self._threads is None:
            raise PluginError("The python tool was not started.", "Await start() before the first call.")
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, self._pool, code)

    def _run(self, pool: Any, code: str) -> Run:
        from pydantic_monty import CollectString, MontyError

        printed = CollectString(self.limits.output_bytes)
        limits = {"max_feed_duration_secs": self.limits.time_s, "max_memory": self.limits.memory_mb * 2**20}
        # Sleeping is instant and the clock stands still: both would only make an episode slow or unrepeatable.
        policy = {"sleep": "zero", "datetime": NOW}
        try:
            with pool.checkout(limits=limits, os_policy=policy) as session:
                value = session.feed_run(code, print_callback=printed)
        except MontyError as error:
            return Run(printed.output, _explain(error, len(printed.output), self.limits))
        return Run(printed.output if value is None else f"{printed.output}{value!r}")

    async def close(self) -> None:
        pool, threads, self._pool, self._threads = self._pool, self._threads, None, None
        if threads is not None:
            await asyncio.to_thread(threads.shutdown, wait=True, cancel_futures=True)
        if pool is not None:
            await asyncio.to_thread(pool.__exit__, None, None, None)


def _explain(error: Any, n_printed: int, limits: Limits) -> str:
    text = str(error)
    if text.startswith("MemoryError") and f"> {limits.output_bytes} bytes" in text:
        return f"The programme printed more than {limits.output_bytes} bytes and was stopped."
    if text.startswith("TimeoutError"):
        return f"The programme ran longer than {limits.time_s:g} seconds and was stopped."
    display = getattr(error, "display", None)
    return display() if display is not None else text
