"""The thread that owns the model, so that a forward never stalls the event loop.

The engine posts commands; between two steps of the scheduler the thread runs them in order, and it sends results
back to the event loops they came from. Only this thread touches the model while the engine runs.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from agentr1_core.errors import EngineError
from agentr1_engine_transformers.scheduler import Scheduler


@dataclass(frozen=True, slots=True)
class _Command:
    run: Callable[[Scheduler], Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any] | None


class Worker:
    """Runs a scheduler in a thread of its own.

    Args:
        build: Loads the model and returns the scheduler; called in the thread.
        shared: Whether the model belongs to a trainer: tensors made here must then be fit for autograd.
        threads: CPU threads of a forward.
    """

    def __init__(self, build: Callable[[], Scheduler], *, shared: bool, threads: int) -> None:
        self._build, self._shared, self._threads = build, shared, threads
        self._inbox: queue.SimpleQueue[_Command | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._refusal: EngineError | None = None
        self._thread = threading.Thread(target=self._main, name="agentr1-transformers", daemon=True)
        self.scheduler: Scheduler | None = None

    def start(self) -> None:
        """Start the thread; ``call`` anything to wait for the model and to learn whether it loaded."""
        self._thread.start()

    async def call(self, run: Callable[[Scheduler], Any]) -> Any:
        """Run something between two steps and return what it returns.

        Raises:
            EngineError: The engine is closed or failed to start.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self.post(run, loop, future)
        return await future

    def post(
        self,
        run: Callable[[Scheduler], Any],
        loop: asyncio.AbstractEventLoop,
        future: asyncio.Future[Any] | None = None,
    ) -> None:
        """Have something run between two steps, without waiting for it."""
        with self._lock:
            if self._refusal is not None:
                raise EngineError(self._refusal.problem, self._refusal.mend) from self._refusal
            self._inbox.put(_Command(run, loop, future))

    async def close(self) -> None:
        """End all requests, keeping what they sampled, and wait for the thread to end."""
        self._inbox.put(None)
        await asyncio.to_thread(self._thread.join)

    def _main(self) -> None:
        torch.set_num_threads(self._threads)
        # Subnormal probabilities are of no use and slow some CPUs down a lot. The flag is this thread's own.
        torch.set_flush_denormal(True)
        try:
            scheduler = self.scheduler = self._build()
        except Exception as error:
            # Whoever awaits the start must hear of it, whatever it is.
            self._refuse(_as_engine_error(error))
            return
        # A model that a trainer shares may keep a tensor of ours (a cached rotary table, say), so no inference mode.
        mode = torch.no_grad() if self._shared else torch.inference_mode()
        refusal = EngineError("The transformers engine is closed.", "Call `start` before `generate`.")
        try:
            with mode:
                self._serve(scheduler)
        except Exception as error:
            # Whatever broke the thread must reach those who wait for it.
            refusal = EngineError(f"The transformers engine broke down: {type(error).__name__}: {error}")
            refusal.__cause__ = error
            scheduler.fail(error)
        scheduler.runner.rest()
        self._deliver(scheduler)
        self._refuse(refusal)

    def _serve(self, scheduler: Scheduler) -> None:
        while True:
            if not self._run_commands(scheduler):
                scheduler.stop(lambda request: True)
                return
            if scheduler.busy:
                scheduler.runner.wake()
                scheduler.advance()
            if not scheduler.busy:
                # Before anybody hears of the last result: a trainer may take a step at once.
                scheduler.runner.rest()
            self._deliver(scheduler)

    def _run_commands(self, scheduler: Scheduler) -> bool:
        """Run what is in the inbox, waiting for something when there is no other work; false means close."""
        block = not scheduler.busy and not scheduler.outcomes
        while True:
            try:
                command = self._inbox.get(block=block)
            except queue.Empty:
                return True
            block = False
            if command is None:
                return False
            try:
                result = command.run(scheduler)
            except Exception as error:
                # The command is at fault, not the engine, so only its caller hears of it.
                _post(command.loop, [(command.future, None, _as_engine_error(error))])
                continue
            if not scheduler.busy:
                scheduler.runner.rest()
            self._deliver(scheduler)
            if command.future is not None:
                _post(command.loop, [(command.future, result, None)])

    def _deliver(self, scheduler: Scheduler) -> None:
        """Send the outcomes so far, in one call for each event loop."""
        by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Any, Any, EngineError | None]]] = {}
        for request, outcome in scheduler.outcomes:
            error = outcome if isinstance(outcome, EngineError) else None
            by_loop.setdefault(request.loop, []).append((request.future, outcome if error is None else None, error))
        scheduler.outcomes = []
        for loop, items in by_loop.items():
            _post(loop, items)

    def _refuse(self, error: EngineError) -> None:
        """Turn down what is in the inbox and all that comes later."""
        with self._lock:
            self._refusal = error
            while not self._inbox.empty():
                command = self._inbox.get()
                if command is not None:
                    _post(command.loop, [(command.future, None, error)])


def _as_engine_error(error: Exception) -> EngineError:
    if isinstance(error, EngineError):
        return error
    wrapped = EngineError(f"The transformers engine could not do that: {type(error).__name__}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _post(loop: asyncio.AbstractEventLoop, items: list[tuple[Any, Any, EngineError | None]]) -> None:
    try:
        loop.call_soon_threadsafe(_settle, items)
    except RuntimeError:
        # That event loop is closed, so nobody waits for these any more.
        return


def _settle(items: list[tuple[Any, Any, EngineError | None]]) -> None:
    for future, result, error in items:
        if future is None or future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
