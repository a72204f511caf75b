"""Whitening: shift and scale numbers to mean 0 and variance 1 over the whole batch.

The REINFORCE++ family calls it on all sampled tokens of all ranks. It never divides by the spread of one number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agentr1_core.credit.baseline import ZERO_SPREAD
from agentr1_core.credit.batch import Bools, Floats


@dataclass(frozen=True, slots=True, eq=False)
class Whitened:
    """The result of ``whiten``."""

    #: ``(T,)``; zero where not included.
    values: Floats
    #: Whether there were fewer than two numbers, which are then kept as they are.
    skipped: bool


def whiten(values: Floats, included: Bools, eps: float = 1e-8) -> Whitened:
    """``(x - mean) / sqrt(var + eps)`` over the included tokens, variance with n-1 in the denominator.

    Args:
        values: ``(T,)`` what to whiten; entries that are not included never matter.
        included: ``(T,)`` which tokens count.
        eps: Added to the variance, as in REINFORCE++ (arXiv 2501.03262) implementations.
    """
    chosen = values[included]
    out = np.zeros_like(values)
    if len(chosen) < 2:
        out[included] = chosen
        return Whitened(out, skipped=len(chosen) == 1)
    mean = chosen.mean()
    centred = chosen - mean
    variance = float(np.sum(centred**2) / (len(chosen) - 1))
    if np.sqrt(variance) > ZERO_SPREAD * max(1.0, float(np.abs(chosen).max())):
        out[included] = centred / np.sqrt(variance + eps)
    return Whitened(out, skipped=False)
