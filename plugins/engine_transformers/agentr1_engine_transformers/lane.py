"""Sequences that are decoded together, one token each per step.

The scheduler keeps one lane for contexts of like length, so that a long episode does not pad everyone. A lane knows
how to step, to drop rows and to take new ones; when to do so is the scheduler's business.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from agentr1_engine_transformers.request import Request
from agentr1_engine_transformers.runner import ModelRunner
from agentr1_engine_transformers.sampling import SamplingPlan, sample
from agentr1_engine_transformers.slab import Block, KvLayout, Slab

#: Up to this many tokens, lengths are never too different to share a lane: another forward costs more than padding.
_SHORT = 1024
#: Beyond, the longest context may be this many times the shortest.
_SPREAD = 4


def alike(n_tokens: int, n_others: int) -> bool:
    """Whether contexts of these lengths may share a lane."""
    longest = max(n_tokens, n_others)
    return longest <= _SHORT or longest <= _SPREAD * min(n_tokens, n_others)


class Lane(Protocol):
    """What the scheduler asks of a lane."""

    rows: list[Request]

    def accepts(self, n_context: int) -> bool:
        """Whether a context of this length fits in well."""

    def add(self, requests: Sequence[Request], blocks: Sequence[Block]) -> None:
        """Take requests; ``blocks`` hold the keys and values of all their tokens but the last."""

    def step(self) -> tuple[list[int], list[float]]:
        """Sample one token for each row: ids and log-probs in the order of ``rows``."""

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows but these."""

    def export(self, row: int) -> Block | None:
        """A copy of the row's keys and values, for all its tokens but the last."""


class CachedLane:
    """A lane over a slab: every row ends at the same column, shorter ones are padded on the left."""

    def __init__(self, runner: ModelRunner, layout: KvLayout) -> None:
        self.rows: list[Request] = []
        self._runner = runner
        self._layout = layout
        self._slab: Slab | None = None
        #: First column of each row.
        self._starts: list[int] = []
        self._tokens = torch.zeros(0, 1, dtype=torch.int64, device=runner.device)
        self._positions = torch.zeros(0, 1, dtype=torch.int64, device=runner.device)
        self._mask: Tensor | None = None
        self._plan: SamplingPlan | None = None

    def accepts(self, n_context: int) -> bool:
        """Whether padding to the longer of the two lengths wastes little."""
        return alike(max((row.n_context for row in self.rows), default=n_context), n_context)

    def add(self, requests: Sequence[Request], blocks: Sequence[Block]) -> None:
        """Copy the requests' keys and values in beside what runs."""
        slab = self._with_room(len(requests), max(block[0].shape[2] for block in blocks))
        for request, block in zip(requests, blocks, strict=True):
            slab.put(slab.n_rows, block, slab.end)
            slab.n_rows += 1
            self._starts.append(slab.end - block[0].shape[2])
            self.rows.append(request)
        device = self._runner.device
        tokens = torch.tensor([[request.tokens[-1]] for request in requests], device=device)
        positions = torch.tensor([[request.n_context - 1] for request in requests], device=device)
        self._tokens = torch.cat([self._tokens, tokens])
        self._positions = torch.cat([self._positions, positions])
        self._changed()

    def step(self) -> tuple[list[int], list[float]]:
        """One forward for all rows, and one draw for each."""
        slab = self._with_room(0, 0)
        if self._plan is None:
            streams = [row.noise for row in self.rows]
            self._plan = SamplingPlan.of([row.sampling for row in self.rows], streams, self._runner.device)
        slab.end += 1
        mask = None if self._mask is None else self._mask[:, slab.begin : slab.end]
        logits = self._runner.cached(slab, self._tokens, self._positions, mask)
        tokens, logprobs = sample(logits, self._plan)
        self._tokens = tokens.unsqueeze(1)
        self._positions = self._positions + 1
        return tokens.tolist(), logprobs.tolist()

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows but these; the order may change."""
        if self._slab is None or len(rows) == len(self.rows):
            return
        order = self._slab.keep(rows)
        index = torch.tensor(order, dtype=torch.int64, device=self._runner.device)
        self.rows = [self.rows[row] for row in order]
        self._starts = [self._starts[row] for row in order]
        self._tokens, self._positions = self._tokens[index], self._positions[index]
        if order:
            self._changed()

    def export(self, row: int) -> Block | None:
        """Copy out what the next turn may reuse."""
        if self._slab is None:
            return None
        return tuple(part.clone() for part in self._slab.view(row, self._starts[row], self._slab.end))

    def _with_room(self, n_rows: int, longest: int) -> Slab:
        """The slab, made larger where needed for further rows, for longer ones and for the next column."""
        slab = self._slab
        if slab is None:
            end = _roomy(longest)
            slab = self._slab = Slab(self._layout, n_rows, end + max(64, end // 2), end, self._runner.device)
            slab.n_rows = 0
            return slab
        rows = slab.n_rows + n_rows
        if rows > slab.capacity or longest > slab.end or slab.end + 1 > slab.columns:
            end = _roomy(max(slab.end - slab.begin, longest))
            capacity = slab.capacity if rows <= slab.capacity else max(rows, slab.capacity * 5 // 4)
            moved = slab.resized(capacity, end + max(64, end // 2), end)
            self._starts = [start + end - slab.end for start in self._starts]
            slab = self._slab = moved
            if self.rows:
                self._changed()
        return slab

    def _changed(self) -> None:
        """Bring begin and mask in line with the rows; the sampling plan is made anew at the next step."""
        if self._slab is None:
            return
        slab, self._plan = self._slab, None
        slab.begin = min(self._starts)
        self._mask = None
        if max(self._starts) > slab.begin:
            starts = torch.tensor(self._starts, device=slab.device).unsqueeze(1)
            self._mask = torch.arange(slab.columns, device=slab.device) >= starts


class RecomputingLane:
    """A lane for models that cannot work with a padded cache: each step computes the whole contexts."""

    def __init__(self, runner: ModelRunner) -> None:
        self.rows: list[Request] = []
        self._runner = runner

    def accepts(self, n_context: int) -> bool:
        """Always: nothing is kept between steps."""
        return True

    def add(self, requests: Sequence[Request], blocks: Sequence[Block]) -> None:
        """Take requests, which need no preparation."""
        self.rows.extend(requests)

    def step(self) -> tuple[list[int], list[float]]:
        """One forward over all contexts, padded on the right, and one draw for each."""
        contexts = [row.context() for row in self.rows]
        width = max(map(len, contexts))
        ids = torch.zeros(len(contexts), width, dtype=torch.int64)
        for row, context in enumerate(contexts):
            ids[row, : len(context)] = torch.from_numpy(context)
        lengths = torch.tensor([len(context) for context in contexts])
        mask = torch.arange(width) < lengths.unsqueeze(1)
        device = self._runner.device
        logits = self._runner.full(ids.to(device), mask.to(device), (lengths - 1).to(device))
        plan = SamplingPlan.of([row.sampling for row in self.rows], [row.noise for row in self.rows], device)
        tokens, logprobs = sample(logits, plan)
        return tokens.tolist(), logprobs.tolist()

    def keep(self, rows: Sequence[int]) -> None:
        """Drop all rows but these."""
        self.rows = [self.rows[row] for row in rows]

    def export(self, row: int) -> Block | None:
        """Nothing is cached."""
        return None


def _roomy(width: int) -> int:
    """Columns to hold ``width`` with a quarter to spare for longer rows, a multiple of 64."""
    return -(-(width + width // 4) // 64) * 64
