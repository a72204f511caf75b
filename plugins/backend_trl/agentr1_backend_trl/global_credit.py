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

from agentr1_backend_trl.critic import explained_variance
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
        ConfigError: The name is unknown.
    """
    if isinstance(estimator, str):
        name = "dr_grpo" if estimator == "grpo" and scale_rewards == "none" else estimator
        if name not in ESTIMATORS:
            raise ConfigError(f"Unknown estimator '{name}'.", f"Use one of: {', '.join(sorted(ESTIMATORS))}.")
        estimator = ESTIMATORS[name]
    built: Estimator = estimator() if isinstance(estimator, type) else estimator
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
    estimator: Estimator, own_batch: CreditBatch, rank: int, *, shuffle: Sequence[int] | None = None
) -> GlobalCredit:
    """Estimate over the groups of all ranks.

    Args:
        estimator: The same on every rank.
        own_batch: This rank's, with the values or log-probs that the estimator needs.
        rank: This process.
        shuffle: Seed of the negative control, which hands each trajectory the credit of a random one; ``None``
            trains as usual.

    Raises:
        ConfigError: The estimator reads values but gives none to learn from.
    """
    parts: list[CreditBatch] = gather_object([own_batch])
    whole = CreditBatch.concat(parts)
    credit = estimator.estimate(whole) if whole.n_steps else Credit(np.zeros(0))
    if estimator.needs_values and credit.returns is None and whole.n_steps:
        raise ConfigError(
            f"Estimator '{estimator.name}' reads values but gives no returns, so that the critic learns nothing.",
            "Fill Credit.returns.",
        )
    if shuffle is not None and whole.n_steps:
        credit = _shuffled(credit, whole, shuffle)
    n_steps = [part.n_steps for part in parts]
    values = _values(estimator, whole)

    def own_part(array: Any) -> Any:
        return None if array is None else whole.split(array, n_steps)[rank]

    own = Credit(
        advantages=own_part(credit.advantages),
        returns=own_part(credit.returns),
        values=own_part(values),
        masked=own_part(credit.masked),
        counters={**credit.counters, **_critic_figures(estimator, whole, credit, values)},
    )
    first = sum(part.n_trajectories for part in parts[:rank])
    return GlobalCredit(own, whole.n_trajectories, first, whole.trajectory_returns())


def _values(estimator: Estimator, batch: CreditBatch) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    """The critic's value of each sampled token, ``(T,)``; for step values that of its step."""
    if not estimator.needs_values:
        return None
    if estimator.value_unit == "token":
        return batch.token_values
    return None if batch.step_values is None else batch.steps_to_tokens(batch.step_values)


def _critic_figures(estimator: Estimator, batch: CreditBatch, credit: Credit, values: Any) -> dict[str, float]:
    """How well the critic knew the returns before this update, over what it values: steps or tokens."""
    if values is None or credit.returns is None:
        return {}
    kept = batch.trajectories_to_tokens(batch.scorable)
    if estimator.value_unit == "step":
        first = np.zeros(batch.total_tokens, dtype=np.bool_)
        first[(np.cumsum(batch.n_tokens) - batch.n_tokens)[batch.n_tokens > 0]] = True
        kept &= first
    if credit.masked is not None:
        kept &= ~credit.masked
    known, returns = values[kept], credit.returns[kept]
    return {
        "critic/explained_variance": explained_variance(known, returns),
        "critic/value": float(known.mean()) if len(known) else 0.0,
        "critic/return": float(returns.mean()) if len(returns) else 0.0,
    }


def _shuffled(credit: Credit, batch: CreditBatch, seed: Sequence[int]) -> Credit:
    """Every trajectory gets the mean advantage of another one, at random: what is left teaches nothing."""
    owner = batch.trajectory[np.repeat(np.arange(batch.n_steps), batch.n_tokens)]
    tokens = np.bincount(owner, minlength=batch.n_trajectories)
    means = np.bincount(owner, credit.advantages, batch.n_trajectories) / np.maximum(tokens, 1)
    order = np.random.default_rng(list(seed)).permutation(batch.n_trajectories)
    return replace(credit, advantages=means[order][owner])
