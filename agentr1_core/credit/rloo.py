"""RLOO: each trajectory is compared with the mean of the others in its group, which its own actions cannot move."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from pydantic import BaseModel

from agentr1_core.credit.baseline import compare_returns, compared_trajectories
from agentr1_core.credit.batch import CreditBatch
from agentr1_core.credit.estimator import Credit, CriticFreeSettings, Estimator


class RLOO(Estimator):
    """``A_i = R_i - mean_{j != i} R_j = n/(n-1) * (R_i - mean_g)`` (arXiv 2402.14740, equation 8)."""

    name: ClassVar[str] = "rloo"
    Settings: ClassVar[type[BaseModel]] = CriticFreeSettings
    settings: CriticFreeSettings

    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages ``(T,)``; zero for groups of one, without spread, and for trajectories without a reward."""
        compared = compared_trajectories(batch, self.settings.truncated)
        centred, _, stats = compare_returns(batch, compared)
        n = stats.count[batch.group]
        return Credit(
            advantages=batch.trajectories_to_tokens(centred * n / np.maximum(n - 1, 1)),
            masked=compared.masked_tokens,
            counters={**compared.counters, **stats.counters},
        )
