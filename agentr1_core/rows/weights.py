"""The weight of each token in the loss: ``loss = sum_j w_j * l_j`` over all rows of one optimiser step.

Denominators count tokens, steps and trajectories, never rows, so that neither merging, nor micro-batches, nor uneven
ranks change the loss. Backends call ``token_weights`` once per optimiser step; under a mean all-reduce they multiply
by the number of ranks.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from agentr1_core.errors import ConfigError
from agentr1_core.rows.row import RowBatch, TrainingRow

#: How token losses are averaged; ``token_weights`` gives the formulas.
WeightMode = Literal[
    "token-mean",
    "traj-mean-token-mean",
    "traj-mean-token-sum",
    "dr-grpo",
    "step-mean",
    "traj-mean-step-mean-token-sum",
]


@dataclass(frozen=True, slots=True)
class Totals:
    """What the denominators count. Add those of all ranks for an optimiser step over several of them."""

    trajectories: int = 0
    steps: int = 0
    tokens: int = 0

    @classmethod
    def of(cls, batch: RowBatch) -> Totals:
        """Trajectories, steps and tokens that train in a batch."""
        return cls(batch.n_trajectories, batch.n_steps, sum(row.n_trained for row in batch.rows))

    def __add__(self, other: Totals) -> Totals:
        return Totals(self.trajectories + other.trajectories, self.steps + other.steps, self.tokens + other.tokens)


def token_weights(
    batch: RowBatch, mode: WeightMode, constant: float | None = None, totals: Totals | None = None
) -> list[NDArray[np.float64]]:
    """One ``(C,)`` array for each row, 0 where the mask is False.

    With N trajectories, S steps, T tokens; trajectory i with K_i steps and T_i tokens; step s with T_s tokens, all
    counting what trains:

    ============================= ===============
    mode                          weight
    ============================= ===============
    token-mean                    1 / T
    traj-mean-token-mean          1 / (N * T_i)
    traj-mean-token-sum           1 / N
    dr-grpo                       1 / (N * constant)
    step-mean                     1 / (S * T_s)
    traj-mean-step-mean-token-sum 1 / (N * K_i)
    ============================= ===============

    PPO, CISPO and REINFORCE losses are homogeneous in the advantage, so the weight may be folded into it. KL and
    entropy terms are not: weight them by themselves.

    Args:
        batch: All rows of a trajectory must be in it.
        mode: See above.
        constant: Tokens that ``dr-grpo`` divides by (arXiv 2503.20783), usually the most a trajectory may sample.
        totals: N, S and T of the whole optimiser step, if it spans more than this batch.

    Raises:
        ConfigError: The mode is unknown, or ``constant`` is missing, not positive or not used.
    """
    if mode not in get_args(WeightMode):
        raise ConfigError(f"Unknown aggregation '{mode}'.", f"Choose one of: {', '.join(get_args(WeightMode))}.")
    if (mode == "dr-grpo") != (constant is not None) or (constant is not None and constant <= 0):
        raise ConfigError(
            f"Aggregation '{mode}' with the constant {constant}.",
            "Give a positive constant with 'dr-grpo', and none with the other modes.",
        )
    whole = totals if totals is not None else Totals.of(batch)
    tokens_of: Counter[tuple[str, str]] = Counter()
    steps_of: Counter[tuple[str, str]] = Counter()
    for row in batch.rows:
        tokens_of[_owner(row)] += row.n_trained
        steps_of[_owner(row)] += len(row.step_indices)

    def denominator(row: TrainingRow) -> float | NDArray[np.float64]:
        match mode:
            case "token-mean":
                return whole.tokens
            case "traj-mean-token-mean":
                return whole.trajectories * tokens_of[_owner(row)]
            case "traj-mean-token-sum":
                return whole.trajectories
            case "dr-grpo":
                return whole.trajectories * (constant or 1.0)
            case "step-mean":
                return whole.steps * _tokens_of_step(row)
            case _:
                return whole.trajectories * steps_of[_owner(row)]

    return [np.where(row.mask, 1.0 / denominator(row), 0.0) for row in batch.rows]


def _owner(row: TrainingRow) -> tuple[str, str]:
    return row.group_id, row.trajectory_id


def _tokens_of_step(row: TrainingRow) -> NDArray[np.float64]:
    """How many tokens train in the step of each token, ``(C,)``; 1 where none does."""
    found = np.ones(len(row.mask))
    for index in row.step_indices:
        span = (row.span_ids == index) & row.mask
        found[span] = span.sum()
    return found
