"""Calls a plain function that may block, without holding up the event loop or the end of the program.

Tools, environments and rewards that are not ``async`` run here, each call in a daemon thread of its own. The loop's
own pool would not do: it is small, so calls that hang starve all others, and the program waits for it at the end.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any


async def call_in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call it and return what it returns; a cancelled caller leaves it behind.

    Raises:
        Exception: What it raises; what is no ordinary exception (``SystemExit``) as a ``RuntimeError``.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: Exception | None) -> None:
        if answer.done():  # cancelled meanwhile
            return
        if error is None:
            answer.set_result(result)
        else:
            answer.set_exception(error)

    def work() -> None:
        result, error = None, None
        try:
            result = context.run(function, *args, **kwargs)
        except Exception as caught:
            error = _ordinary(caught) if isinstance(caught, StopIteration) else caught
        except BaseException as caught:  # must not end the program from within a thread
            error = _ordinary(caught)
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=work, name=f"agentr1-{getattr(function, '__name__', 'call')}", daemon=True).start()
    return await answer


def _ordinary(caught: BaseException) -> Exception:
    error = RuntimeError(f"{type(caught).__name__}: {caught}")
    error.__cause__ = caught
    return error
