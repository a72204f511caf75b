"""How many rows train in one round, on which rank and in which order: pure arithmetic, no tensors.

Trajectories give any number of rows, but OpenRLHF deals equal parts to its ranks and cuts them into micro-batches.
``RowPlan`` says how many rows of padding that takes, and how many optimiser steps they make: as many as the
trajectories alone would, so that neither merging nor the length of episodes changes the number of updates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RowPlan:
    """One round of ``n_rows`` rows."""

    n_rows: int
    #: Rows without a token to train, so that every rank and every micro-batch is full.
    n_padding: int
    #: Optimiser steps of one pass over the rows.
    optimizer_steps: int
    #: Ranks that share the rows.
    n_ranks: int
    #: Rows of one forward and backward on one rank.
    train_micro_batch: int

    @property
    def total(self) -> int:
        """Rows with padding."""
        return self.n_rows + self.n_padding

    @classmethod
    def of(
        cls,
        n_rows: int,
        *,
        optimizer_steps: int,
        n_ranks: int,
        train_micro_batch: int,
        forward_micro_batch: int,
        n_training: int | None = None,
    ) -> RowPlan:
        """Plan a round.

        Every optimiser step has at least one row that trains, whatever the order: there are fewer other rows than a
        step takes. Where there are too few rows for that, it is fewer steps.

        Args:
            n_rows: Rows, at least 1.
            optimizer_steps: Wanted steps.
            n_ranks: Data-parallel ranks.
            train_micro_batch: Rows of one forward and backward on one rank.
            forward_micro_batch: Rows of one forward without gradient.
            n_training: How many of the rows train; all where ``None``.
        """
        training = n_rows if n_training is None else n_training
        if training < 1:
            raise ValueError("A round needs at least one row that trains.")
        for steps in range(max(optimizer_steps, 1), 0, -1):
            unit = n_ranks * math.lcm(train_micro_batch * steps, forward_micro_batch)
            total = math.ceil(n_rows / unit) * unit
            if total - training < total // steps or steps == 1:
                return cls(n_rows, total - n_rows, steps, n_ranks, train_micro_batch)
        raise AssertionError("one step always has a row that trains")

    def with_training(self, n_training: int) -> RowPlan:
        """The same rows in no more steps, now that fewer of them are found to train."""
        micro_batches = self.total // (self.n_ranks * self.train_micro_batch)
        for steps in range(self.optimizer_steps, 1, -1):
            if micro_batches % steps == 0 and self.total - n_training < self.total // steps:
                return replace(self, optimizer_steps=steps)
        return replace(self, optimizer_steps=1)

    def deal(self, lengths: Sequence[int]) -> list[int]:
        """An order of the rows in which consecutive equal parts, one a rank, hold about equally many tokens.

        Args:
            lengths: Tokens of each of the ``total`` rows.

        Returns:
            Row numbers: those of the first rank, then those of the second, and so on; longest first in each.
        """
        longest_first = sorted(range(self.total), key=lambda row: -lengths[row])
        ranks: list[list[int]] = [[] for _ in range(self.n_ranks)]
        for place, row in enumerate(longest_first):
            turn, rank = divmod(place, self.n_ranks)
            ranks[rank if turn % 2 == 0 else self.n_ranks - 1 - rank].append(row)
        return [row for rank in ranks for row in rank]
