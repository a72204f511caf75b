"""Which trajectories are compared, and what their group says: the part all critic-free estimators share.

Estimators call ``compared_trajectories`` and then ``group_statistics``. All sums are two-pass in float64, and the
unit of every statistic is the trajectory: one with many steps weighs no more than one with few.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from agentr1_core.credit.batch import Bools, CreditBatch, Floats, Ints

#: A spread below this share of the largest magnitude (or of 1) is rounding, not a difference between trajectories.
ZERO_SPREAD = 1e-8


@dataclass(frozen=True, slots=True, eq=False)
class Compared:
    """Which trajectories take part in baselines and training."""

    #: Whether each trajectory has a return that counts, ``(M,)``; the others get advantage zero.
    included: Bools
    #: Whether each sampled token belongs to a trajectory left out as truncated, ``(T,)``; ``None`` if it is allowed.
    masked_tokens: Bools | None
    counters: Mapping[str, float] = field(default_factory=dict)


def compared_trajectories(batch: CreditBatch, truncated: Literal["return", "mask"]) -> Compared:
    """Leave out trajectories without any reward and, with ``"mask"``, those that a limit cut short.

    The return of a masked trajectory is taken as unknown, so it is no part of its group's baseline either.
    """
    scorable = batch.scorable
    cut = batch.cut_short & scorable if truncated == "mask" else np.zeros(batch.n_trajectories, dtype=np.bool_)
    return Compared(
        included=scorable & ~cut,
        masked_tokens=batch.trajectories_to_tokens(cut) if truncated == "mask" else None,
        counters={
            "credit/trajectories": float(batch.n_trajectories),
            "credit/unscorable": float(np.sum(~scorable)),
            "credit/truncated_masked": float(np.sum(cut)),
        },
    )


@dataclass(frozen=True, slots=True, eq=False)
class GroupStatistics:
    """Mean and spread of each of the G groups."""

    #: Trajectories compared in each group, ``(G,)``.
    count: Ints
    #: Mean of each group, ``(G,)``; 0 where nothing is compared.
    mean: Floats
    #: Standard deviation with n-1 in the denominator, ``(G,)``; 0 below two trajectories.
    std: Floats
    #: Whether a group tells its trajectories apart: at least two of them and a real spread, ``(G,)``.
    informative: Bools

    @property
    def counters(self) -> dict[str, float]:
        """How many groups there are and how many say nothing, by reason."""
        return {
            "credit/groups": float(len(self.count)),
            "credit/groups_of_one": float(np.sum(self.count == 1)),
            "credit/zero_variance_groups": float(np.sum((self.count > 1) & ~self.informative)),
        }


def group_statistics(values: Floats, group: Ints, weights: Floats, n_groups: int) -> GroupStatistics:
    """Statistics of weighted values by group.

    Args:
        values: ``(K,)`` one for each trajectory, or for each step.
        group: ``(K,)`` group index of each value.
        weights: ``(K,)`` such that each compared trajectory has the total weight 1 and every other one 0.
        n_groups: G.
    """

    def total(x: Floats) -> Floats:
        return np.bincount(group, weights * x, n_groups).astype(np.float64)

    # Weights of 1/K_i add up to a whole number only up to rounding.
    count = np.rint(total(np.ones_like(values))).astype(np.int64)
    filled = np.maximum(count, 1)
    mean = total(values) / filled
    std = np.sqrt(total((values - mean[group]) ** 2) / np.maximum(count - 1, 1))
    magnitude = np.ones(n_groups)
    np.maximum.at(magnitude, group, np.where(weights > 0, np.abs(values), 0.0))
    return GroupStatistics(
        count=count,
        mean=mean,
        std=np.where(count > 1, std, 0.0),
        informative=(count > 1) & (std > ZERO_SPREAD * magnitude),
    )


def compare_returns(batch: CreditBatch, compared: Compared) -> tuple[Floats, Bools, GroupStatistics]:
    """Centre each trajectory's return on its group.

    Returns:
        ``R_i - mean_g``, ``(M,)``, zero where nothing can be said; whether something can, ``(M,)``; the statistics.
    """
    returns = batch.trajectory_returns()
    stats = group_statistics(returns, batch.group, compared.included.astype(np.float64), batch.n_groups)
    told_apart = compared.included & stats.informative[batch.group]
    return np.where(told_apart, returns - stats.mean[batch.group], 0.0), told_apart, stats
