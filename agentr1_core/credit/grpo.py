"""GRPO and Dr.GRPO: one score for each trajectory, compared with its group and given to all its tokens.

Moving reward between the steps of a trajectory therefore changes nothing; see ``step_grpo`` for credit by step.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import BaseModel, Field

from agentr1_core.credit.baseline import compare_returns, compared_trajectories
from agentr1_core.credit.batch import CreditBatch
from agentr1_core.credit.estimator import Credit, CriticFreeSettings, Estimator


class GRPOSettings(CriticFreeSettings):
    """Settings of ``grpo``."""

    #: Added to the group's standard deviation.
    eps: float = Field(default=1e-6, ge=0)


class GRPO(Estimator):
    """``A_i = (R_i - mean_g) / (std_g + eps)``, std with n-1 (DeepSeekMath, arXiv 2402.03300, section 4.1.2)."""

    name: ClassVar[str] = "grpo"
    Settings: ClassVar[type[BaseModel]] = GRPOSettings
    settings: GRPOSettings

    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages ``(T,)``; zero for groups of one, without spread, and for trajectories without a reward."""
        compared = compared_trajectories(batch, self.settings.truncated)
        centred, told_apart, stats = compare_returns(batch, compared)
        scale = np.where(told_apart, stats.std[batch.group] + self.settings.eps, 1.0)
        return Credit(
            advantages=batch.trajectories_to_tokens(centred / scale),
            masked=compared.masked_tokens,
            counters={**compared.counters, **stats.counters},
        )


class DrGRPO(Estimator):
    """``A_i = R_i - mean_g``: GRPO without the division by the group's spread (arXiv 2503.20783, section 3.2).

    The other half of Dr.GRPO, a constant in place of the length, is the ``dr-grpo`` mode of ``token_weights``.
    """

    name: ClassVar[str] = "dr_grpo"
    Settings: ClassVar[type[BaseModel]] = CriticFreeSettings
    settings: CriticFreeSettings

    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages ``(T,)``; zero where ``grpo``'s are."""
        compared = compared_trajectories(batch, self.settings.truncated)
        centred, _, stats = compare_returns(batch, compared)
        return Credit(
            advantages=batch.trajectories_to_tokens(centred),
            masked=compared.masked_tokens,
            counters={**compared.counters, **stats.counters},
        )
