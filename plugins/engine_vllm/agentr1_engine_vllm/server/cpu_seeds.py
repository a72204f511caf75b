"""Keeps seeded requests from ending vLLM on CPU when their prompt is computed in parts.

vLLM draws a token after each part and throws it away; to give seeded requests the same tokens however their prompt is
cut, it then winds their generator back, by a method that generators on CPU do not have. Here the state is kept before
the draw and put back after it. The worker extension applies it; on GPUs it changes nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np


def rewind_thrown_away_draws(runner: Any) -> bool:
    """Mend a model runner class in place; ``False`` where it has not the methods to mend.

    Args:
        runner: vLLM's ``GPUModelRunner``, which its CPU runner inherits from.
    """
    if getattr(runner, "agentr1_rewinds", False):
        return True
    if not hasattr(runner, "_sample") or not hasattr(runner, "_bookkeeping_sync"):
        return False
    sample, keep_books = runner._sample, runner._bookkeeping_sync

    def sample_and_rewind(self: Any, *args: Any, **kwargs: Any) -> Any:
        kept = {index: generator.get_state() for index, generator in _thrown_away(self).items()}
        result = sample(self, *args, **kwargs)
        for index, state in kept.items():
            self.input_batch.generators[index].set_state(state)
        return result

    def keep_books_without_rewinding(self: Any, *args: Any, **kwargs: Any) -> Any:
        generators = self.input_batch.generators
        hidden = {index: generators.pop(index) for index in _thrown_away(self)}
        try:
            return keep_books(self, *args, **kwargs)
        finally:
            generators.update(hidden)

    runner._sample, runner._bookkeeping_sync = sample_and_rewind, keep_books_without_rewinding
    runner.agentr1_rewinds = True
    return True


def _thrown_away(runner: Any) -> dict[int, Any]:
    """Generators on CPU of requests whose next draw does not count."""
    mask = runner.discard_request_mask.np[: runner.input_batch.num_reqs]
    found = {int(index): runner.input_batch.generators.get(int(index)) for index in np.nonzero(mask)[0]}
    return {index: one for index, one in found.items() if one is not None and one.device.type == "cpu"}
