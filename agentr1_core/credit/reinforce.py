"""REINFORCE, and the REINFORCE++ family: advantages whitened over all sampled tokens of the batch.

Whitening is global, so a backend with several ranks joins their batches before it calls these estimators.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from agentr1_core.credit.baseline import compare_returns, compared_trajectories
from agentr1_core.credit.batch import CreditBatch
from agentr1_core.credit.estimator import Credit, CriticFreeSettings, Estimator
from agentr1_core.credit.whiten import whiten


class ReinforceSettings(CriticFreeSettings):
    """Settings of ``reinforce``."""

    #: Discount from one step to the next.
    gamma: float = Field(default=1.0, ge=0, le=1)


class Reinforce(Estimator):
    """``A_t = G_t = sum_k gamma^k r_{t+k}`` over the whole trajectory (Williams 1992), without any baseline.

    Unbiased at ``gamma=1`` and needs no group, but its variance is the largest of all.
    """

    name: ClassVar[str] = "reinforce"
    compares_group = False
    Settings: ClassVar[type[BaseModel]] = ReinforceSettings
    settings: ReinforceSettings

    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages ``(T,)``; zero for trajectories without a reward."""
        compared = compared_trajectories(batch, self.settings.truncated)
        returns = batch.returns_to_go(self.settings.gamma)
        return Credit(
            advantages=batch.steps_to_tokens(np.where(compared.included[batch.trajectory], returns, 0.0)),
            masked=compared.masked_tokens,
            counters=compared.counters,
        )


class ReinforcePPSettings(CriticFreeSettings):
    """Settings of ``reinforce_pp``."""

    #: Discount from one step to the next.
    gamma: float = Field(default=1.0, ge=0, le=1)


class ReinforcePP(Estimator):
    """``G_t = sum_k gamma^k r_{t+k}`` over the whole trajectory, whitened over tokens (arXiv 2501.03262).

    Time is counted in steps and a reward reaches every earlier step of its trajectory. Implementations that take
    each step for an episode of its own lose that; those that discount by token agree with this one at ``gamma=1``.
    """

    name: ClassVar[str] = "reinforce_pp"
    compares_group = False
    Settings: ClassVar[type[BaseModel]] = ReinforcePPSettings
    settings: ReinforcePPSettings

    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages ``(T,)``; zero for trajectories without a reward and where all returns are equal."""
        compared = compared_trajectories(batch, self.settings.truncated)
        returns = batch.steps_to_tokens(batch.returns_to_go(self.settings.gamma))
        result = whiten(returns, batch.trajectories_to_tokens(compared.included))
        return Credit(
            advantages=result.values,
            masked=compared.masked_tokens,
            counters={**compared.counters, "credit/whitening_skipped": float(result.skipped)},
        )


class ReinforcePPBaseline(Estimator):
    """``R_i - mean_g``, then whitened over tokens (REINFORCE++-baseline, arXiv 2501.03262).

    Groups of one and groups without spread say nothing about the policy: they get zero and stay out of the
    whitening, where the mean over the batch would otherwise push all their tokens the same way.
    """

    name: ClassVar[str] = "reinforce_pp_baseline"
    Settings: ClassVar[type[BaseModel]] = CriticFreeSettings
    settings: CriticFreeSettings

    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages ``(T,)``; zero where ``grpo``'s are."""
        compared = compared_trajectories(batch, self.settings.truncated)
        centred, told_apart, stats = compare_returns(batch, compared)
        result = whiten(batch.trajectories_to_tokens(centred), batch.trajectories_to_tokens(told_apart))
        return Credit(
            advantages=result.values,
            masked=compared.masked_tokens,
            counters={
                **compared.counters,
                **stats.counters,
                "credit/whitening_skipped": float(result.skipped),
            },
        )
