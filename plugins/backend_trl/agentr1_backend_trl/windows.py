"""Which trajectories make up which optimiser step, and how their rows are cut into pieces that fit into memory.

The trainer calls it once per generation batch. A *window* is one optimiser step, a *part* one of its
gradient-accumulation steps, a *chunk* the rows of one forward. The number of windows and parts follows from the
configuration alone, never from how many rows the episodes gave; nothing here looks at tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agentr1_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a generation batch feeds optimiser steps."""

    #: Optimiser steps that one generation batch feeds.
    n_windows: int
    #: Gradient-accumulation steps that each of them takes from it.
    parts_per_window: int
    #: Whether several generation batches share one optimiser step. Each then counts by its share of the steps.
    shared: bool


def plan_schedule(steps_per_generation: int, gradient_accumulation_steps: int) -> Schedule:
    """The schedule that ``GRPOConfig`` asks for.

    Raises:
        ConfigError: Neither number divides the other, so that an optimiser step would begin inside a batch.
    """
    if steps_per_generation % gradient_accumulation_steps == 0:
        n_windows = steps_per_generation // gradient_accumulation_steps
        return Schedule(n_windows, gradient_accumulation_steps, shared=False)
    if gradient_accumulation_steps % steps_per_generation == 0:
        return Schedule(1, steps_per_generation, shared=True)
    raise ConfigError(
        f"steps_per_generation={steps_per_generation} and gradient_accumulation_steps={gradient_accumulation_steps} "
        "do not divide each other.",
        "Make one a multiple of the other.",
    )


def deal_trajectories(n_trajectories: int, n_windows: int, seed: Sequence[int]) -> NDArray[np.int64]:
    """The window of each trajectory, ``(n_trajectories,)``: shuffled, and as even as it can be.

    All ranks call it with the same arguments and use their own slice, so that the windows do not depend on how many
    ranks there are.
    """
    windows = np.empty(n_trajectories, dtype=np.int64)
    order = np.random.default_rng(list(seed)).permutation(n_trajectories)
    windows[order] = np.arange(n_trajectories) % n_windows
    return windows


def cut_into_chunks(
    lengths: Sequence[int], most_rows: int, n_parts: int, rows_per_forward: int
) -> list[list[list[int | None]]]:
    """Row numbers by part and chunk; ``None`` is a padding row.

    Rows are sorted by length, longest first, so that a chunk wastes little on padding and the largest forward comes
    first.

    Args:
        lengths: Tokens of each row of this rank.
        most_rows: Rows of the rank that has most; every rank gets that many, rounded up to whole parts.
        n_parts: Parts of the window.
        rows_per_forward: Rows of a chunk at most.
    """
    per_part = max(1, math.ceil(most_rows / n_parts))
    order: list[int | None] = [int(row) for row in np.argsort([-length for length in lengths], kind="stable")]
    order += [None] * (per_part * n_parts - len(order))
    parts = [order[start : start + per_part] for start in range(0, per_part * n_parts, per_part)]
    return [[part[a : a + rows_per_forward] for a in range(0, per_part, rows_per_forward)] for part in parts]


def deal_pieces(
    pieces: Sequence[Sequence[int]], everywhere: Sequence[Sequence[int]], n_parts: int
) -> list[list[list[int | None]]]:
    """Row numbers by part and chunk, for chunks that are already made, such as token trees.

    Every rank gets equally many chunks, and as many rows in each as the rank that has most of them, because TRL
    gathers figures of rows; padding rows all share their tokens, so they cost next to nothing in a tree.

    Args:
        pieces: Row numbers of each chunk of this rank.
        everywhere: For every rank, the number of rows of each of its chunks.
        n_parts: Parts of the window.
    """
    per_part = max(1, math.ceil(max(len(rank) for rank in everywhere) / n_parts))
    filled: list[list[int | None]] = []
    for number in range(per_part * n_parts):
        own = list(pieces[number]) if number < len(pieces) else []
        most = max((rank[number] for rank in everywhere if number < len(rank)), default=1)
        filled.append([*own, *[None] * (most - len(own))])
    return [filled[start : start + per_part] for start in range(0, per_part * n_parts, per_part)]
