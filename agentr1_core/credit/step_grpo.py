"""Step-level GRPO: the discounted return-to-go of each step, compared with all steps of its group.

``grpo``, ``dr_grpo`` and ``rloo`` give a whole trajectory one score; this one tells its steps apart.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from agentr1_core.credit.baseline import compared_trajectories, group_statistics
from agentr1_core.credit.batch import CreditBatch
from agentr1_core.credit.estimator import Credit, CriticFreeSettings, Estimator


class StepGRPOSettings(CriticFreeSettings):
    """Settings of ``step_grpo``."""

    #: Discount from one step to the next; below 1 it prefers short solutions.
    gamma: float = Field(default=0.95, ge=0, le=1)
    #: Added to the spread. Larger than in ``grpo``: discounting alone makes small differences among trajectories that
    #: all succeed, and dividing by them would blow them up.
    eps: float = Field(default=1e-2, ge=0)


class StepGRPO(Estimator):
    """``A_it = (G_it - mean_g) / (std_g + eps)`` with ``G_it = sum_k gamma^k r_{i,t+k}``.

    The mean and spread run over all steps of the group, each trajectory weighing 1 in total:
    ``mean_g = 1/n sum_i 1/K_i sum_t G_it`` and ``std_g^2 = 1/(n-1) sum_i 1/K_i sum_t (G_it - mean_g)^2``. With
    ``gamma=1`` and a reward at the end only, this is GRPO.

    Its bias: the baseline is one number for steps at all depths, so where returns-to-go grow towards the goal, late
    steps look better than early ones whatever was done, even in a group whose trajectories are all alike. It also
    contains the trajectory's own steps, whose number the policy chooses, so unlike RLOO's it is not independent of
    the action that is judged. Dividing by the spread weighs groups unequally, as in GRPO. It is cheap, needs no
    critic and tells steps apart; where an unbiased gradient matters more, use ``rloo``.
    """

    name: ClassVar[str] = "step_grpo"
    Settings: ClassVar[type[BaseModel]] = StepGRPOSettings
    settings: StepGRPOSettings

    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages ``(T,)``; zero for groups of one, without spread, and for trajectories without a reward."""
        compared = compared_trajectories(batch, self.settings.truncated)
        returns = batch.returns_to_go(self.settings.gamma)
        steps_of = np.bincount(batch.trajectory, minlength=batch.n_trajectories)
        included = compared.included[batch.trajectory]
        group = batch.group[batch.trajectory]
        stats = group_statistics(returns, group, included / steps_of[batch.trajectory], batch.n_groups)
        centred = (returns - stats.mean[group]) / np.where(stats.informative, stats.std + self.settings.eps, 1.0)[group]
        return Credit(
            advantages=batch.steps_to_tokens(np.where(included & stats.informative[group], centred, 0.0)),
            masked=compared.masked_tokens,
            counters={**compared.counters, **stats.counters},
        )
