"""Credit over all ranks: groups may be split between processes, and baselines are taken over whole groups.

Every rank gathers the flat credit batches of all (numbers only, no tokens), estimates the same credit, and keeps
its own part. Each function here reaches its collectives exactly once, also on a rank without any episode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from accelerate.utils import gather_object

from agentr1_core.credit import ESTIMATORS, Credit, CreditBatch, Estimator
from agentr1_core.errors import ConfigError
from agentr1_core.mdp import Group, StopReason


@dataclass(frozen=True, slots=True)
class GlobalCredit:
    """What a rank knows after estimating."""

    #: For the tokens of this rank's groups.
    own: Credit
    #: Trajectories of all ranks, and the position of this rank's first one among them.
    n_trajectories: int
    first: int
    #: Undiscounted return of each trajectory of all ranks, ``(n_trajectories,)``.
    returns: np.ndarray[Any, np.dtype[np.float64]]


def as_estimator(estimator: Any, scale_rewards: str = "group") -> Estimator:
    """An estimator from an instance, a class or a name.

    ``scale_rewards="none"`` turns ``"grpo"`` into ``"dr_grpo"``, which does not divide by the group's spread.

    Raises:
        ConfigError: The name is unknown, or the estimator needs a critic.
    """
    if isinstance(estimator, str):
        name = "dr_grpo" if estimator == "grpo" and scale_rewards == "none" else estimator
        if name not in ESTIMATORS:
            raise ConfigError(f"Unknown estimator '{name}'.", f"Use one of: {', '.join(sorted(ESTIMATORS))}.")
        estimator = ESTIMATORS[name]
    built: Estimator = estimator() if isinstance(estimator, type) else estimator
    if built.needs_values:
        raise ConfigError(
            f"Estimator '{built.name}' needs a critic, which TRL's GRPO does not train.",
            "Use one without values, such as 'grpo'.",
        )
    return built


def leave_out_small_groups(groups: Sequence[Group], least: int) -> tuple[Group, ...]:
    """Groups that have fewer than ``least`` usable trajectories on all ranks together fail whole."""
    sizes: Counter[str] = Counter()
    for found in gather_object([[(group.id, len(group.trajectories)) for group in groups]]):
        for name, count in found:
            sizes[name] += count
    kept = []
    for group in groups:
        if group.trajectories and sizes[group.id] < least:
            why = f"left out: only {sizes[group.id]} of the group's episodes are usable, {least} are needed"
            out = tuple(replace(t, stop_reason=StopReason.ABORTED, error=why) for t in group.trajectories)
            group = replace(group, trajectories=(), failed=(*group.failed, *out))
        kept.append(group)
    return tuple(kept)


def estimate_globally(
    estimator: Estimator, groups: Sequence[Group], rank: int, *, shuffle: Sequence[int] | None = None
) -> GlobalCredit:
    """Estimate over the groups of all ranks.

    Args:
        estimator: The same on every rank.
        groups: This rank's.
        rank: This process.
        shuffle: Seed of the negative control, which hands each trajectory the credit of a random one; ``None``
            trains as usual.

    Raises:
        RewardError: A reward is not a finite number; names the trajectory and the step.
    """
    parts: list[CreditBatch] = gather_object([CreditBatch.from_groups(groups)])
    whole = CreditBatch.concat(parts)
    credit = estimator.estimate(whole) if whole.n_steps else Credit(np.zeros(0))
    if shuffle is not None and whole.n_steps:
        credit = _shuffled(credit, whole, shuffle)
    n_steps = [part.n_steps for part in parts]
    own = Credit(
        advantages=whole.split(credit.advantages, n_steps)[rank],
        masked=None if credit.masked is None else whole.split(credit.masked, n_steps)[rank],
        counters=credit.counters,
    )
    first = sum(part.n_trajectories for part in parts[:rank])
    return GlobalCredit(own, whole.n_trajectories, first, whole.trajectory_returns())


def _shuffled(credit: Credit, batch: CreditBatch, seed: Sequence[int]) -> Credit:
    """Every trajectory gets the mean advantage of another one, at random: what is left teaches nothing."""
    owner = batch.trajectory[np.repeat(np.arange(batch.n_steps), batch.n_tokens)]
    tokens = np.bincount(owner, minlength=batch.n_trajectories)
    means = np.bincount(owner, credit.advantages, batch.n_trajectories) / np.maximum(tokens, 1)
    order = np.random.default_rng(list(seed)).permutation(batch.n_trajectories)
    return replace(credit, advantages=means[order][owner])
