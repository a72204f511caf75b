"""GiGPO: a trajectory's score within its group, plus a step's score among the steps that saw the same state.

States are told apart by ``CreditBatch.anchor``: the environment's own name for them, else the exact prompt tokens.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field

from agentr1_core.credit.baseline import compare_returns, compared_trajectories, group_statistics
from agentr1_core.credit.batch import Bools, CreditBatch, Ints
from agentr1_core.credit.estimator import Credit, CriticFreeSettings, Estimator


class GiGPOSettings(CriticFreeSettings):
    """Settings of ``gigpo``."""

    #: Discount of the return-to-go that compares steps.
    gamma: float = Field(default=0.95, ge=0, le=1)
    #: Weight of the step's score.
    step_weight: float = Field(default=1.0, ge=0)
    #: Divide both scores by their spread, or only subtract the mean.
    norm: Literal["std", "mean"] = "std"
    #: Added to the spread.
    eps: float = Field(default=1e-6, ge=0)


class GiGPO(Estimator):
    """``A_it = A_i + w (G_it - mean_s) / (std_s + eps)`` (Feng et al., arXiv 2505.10978).

    ``A_i`` is GRPO's; ``G_it = sum_k gamma^k r_{i,t+k}``; mean and spread (n-1) run over all visits to the state s in
    the group, repeated visits by one trajectory included, as in the paper. A state visited once adds nothing. With a
    context that only grows, prompts differ as soon as the past does; let the environment name its states there.
    """

    name: ClassVar[str] = "gigpo"
    Settings: ClassVar[type[BaseModel]] = GiGPOSettings
    settings: GiGPOSettings

    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages ``(T,)``; both scores are zero where there is nothing to compare with."""
        told = self.settings
        divide = told.norm == "std"
        compared = compared_trajectories(batch, told.truncated)
        centred, told_apart, stats = compare_returns(batch, compared)
        scale = np.where(told_apart & divide, stats.std[batch.group] + told.eps, 1.0)
        trajectory_score = (centred / scale)[batch.trajectory]

        state, named = _states(batch)
        # A lone trajectory that came back to a state is not compared with itself: a group of one says nothing.
        usable = (compared.included & (stats.count[batch.group] > 1))[batch.trajectory] & named
        returns = batch.returns_to_go(told.gamma)
        n_states = int(state.max()) + 1 if len(state) else 0
        visits = group_statistics(returns, state, usable.astype(np.float64), n_states)
        telling = usable & visits.informative[state]
        spread = np.where(telling & divide, visits.std[state] + told.eps, 1.0)
        step_score = np.where(telling, (returns - visits.mean[state]) / spread, 0.0)
        return Credit(
            advantages=batch.steps_to_tokens(trajectory_score + told.step_weight * step_score),
            masked=compared.masked_tokens,
            counters={
                **compared.counters,
                **stats.counters,
                "credit/states": float(np.sum(visits.count > 0)),
                "credit/states_seen_once": float(np.sum(visits.count == 1)),
                "credit/steps_without_anchor": float(np.sum(~named)),
            },
        )


def _states(batch: CreditBatch) -> tuple[Ints, Bools]:
    """Dense index of the (group, anchor) of each step, and whether it has an anchor, ``(N,)`` each."""
    index: dict[tuple[int, str | None], int] = {}
    groups = batch.group[batch.trajectory].tolist()
    keys = zip(groups, batch.anchor, strict=True)
    state = np.asarray([index.setdefault(key, len(index)) for key in keys], dtype=np.int64)
    return state, np.asarray([name is not None for name in batch.anchor], dtype=np.bool_)
