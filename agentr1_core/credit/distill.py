"""On-policy distillation: a teacher judges every token the policy sampled, alone or on top of another estimator.

The backend fills ``sampled_logprobs`` and ``teacher_logprobs`` of the ``CreditBatch``; the teacher reads exactly the
tokens the policy read. Nothing here needs the teacher's whole vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field

from agentr1_core.credit.batch import CreditBatch, Floats
from agentr1_core.credit.estimator import Credit, Estimator, EstimatorSettings
from agentr1_core.errors import ConfigError


class DistillSettings(EstimatorSettings):
    """Settings of ``distill``."""

    #: Weight of the teacher's judgement.
    beta: float = Field(default=1.0, ge=0)
    #: Discount from one sampled token to the next; 0 judges each token by itself.
    discount: float = Field(default=0.0, ge=0, le=1)
    #: Built-in estimator whose advantages it is added to; ``None`` leaves the rewards out.
    base: str | None = None
    #: Settings of that estimator.
    base_settings: Mapping[str, Any] = Field(default_factory=dict)


class Distill(Estimator):
    """``A_j += beta sum_k discount^k (log p_teacher - log p_sampled)_{j+k}``: reverse KL on the policy's own tokens
    (Agarwal et al., arXiv 2306.13649; Lu et al. 2025, "On-Policy Distillation").

    ``k`` counts sampled tokens of the trajectory only, so that neither what an environment answers nor how steps share
    rows changes the sum. A token without a finite log-prob of either side adds nothing and is counted. The teacher's
    part is added after the base estimator has whitened; it stays in place where the base has nothing to say, as in
    groups of one and in trajectories without a reward, except in trajectories it masks.
    """

    name: ClassVar[str] = "distill"
    needs_teacher = True
    compares_group = False
    Settings: ClassVar[type[BaseModel]] = DistillSettings
    settings: DistillSettings

    def __init__(self, settings: BaseModel | Mapping[str, Any] | None = None) -> None:
        super().__init__(settings)
        self._base = _find_base(self.settings)
        self.needs_values = self._base is not None and self._base.needs_values
        self.value_unit = "step" if self._base is None else self._base.value_unit
        self.compares_group = self._base is not None and self._base.compares_group

    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages ``(T,)``; returns and mask are the base's.

        Raises:
            ConfigError: The batch has no log-probs of the policy or of the teacher.
        """
        sampled, teacher = batch.sampled_logprobs, batch.teacher_logprobs
        if sampled is None or teacher is None:
            raise ConfigError(
                "Credit estimator 'distill' needs log-probs of a teacher, but the batch has none.",
                "Use a backend with a teacher and name one, for TRL `backend.teacher`.",
            )
        known = np.isfinite(sampled) & np.isfinite(teacher)
        gap = np.where(known, np.where(known, teacher, 0.0) - np.where(known, sampled, 0.0), 0.0)
        owner = batch.trajectories_to_tokens(np.arange(batch.n_trajectories))
        judged = self.settings.beta * _discounted(gap, owner, self.settings.discount)
        base = Credit(np.zeros(batch.total_tokens)) if self._base is None else self._base.estimate(batch)
        return replace(
            base,
            advantages=base.advantages + judged,
            counters={
                **base.counters,
                "credit/teacher_gap": float(gap[known].mean()) if known.any() else 0.0,
                "credit/tokens_without_teacher": float(np.sum(~known)),
            },
        )


def _discounted(values: Floats, owner: np.ndarray[Any, np.dtype[np.int64]], discount: float) -> Floats:
    if discount == 0:
        return values
    found = np.zeros_like(values)
    ahead = 0.0
    for j in range(len(values) - 1, -1, -1):
        last = j + 1 == len(values) or owner[j + 1] != owner[j]
        ahead = values[j] + (0.0 if last else discount * ahead)
        found[j] = ahead
    return found


def _find_base(settings: DistillSettings) -> Estimator | None:
    if settings.base is None:
        if settings.base_settings:
            raise ConfigError("Credit estimator 'distill' has base_settings but no base.", "Name the base.")
        return None
    from agentr1_core.credit import ESTIMATORS  # which lists this estimator too

    known = sorted(set(ESTIMATORS) - {Distill.name})
    if settings.base not in known:
        raise ConfigError(
            f"Credit estimator 'distill', setting 'base': unknown estimator '{settings.base}'.",
            f"Use one of: {', '.join(known)}.",
        )
    return ESTIMATORS[settings.base](settings.base_settings)
