"""Credit assignment: from the rewards of steps to an advantage for each sampled token, in numpy.

``CreditBatch`` is the input, ``Credit`` the output, ``Estimator`` the contract; there is one file per family.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agentr1_core.credit.batch import CreditBatch, ordered_steps
from agentr1_core.credit.estimator import Credit, CriticFreeSettings, Estimator, EstimatorSettings
from agentr1_core.credit.grpo import GRPO, DrGRPO
from agentr1_core.credit.reinforce import ReinforcePP, ReinforcePPBaseline
from agentr1_core.credit.rloo import RLOO
from agentr1_core.credit.step_grpo import StepGRPO

#: The estimators that come with the core, by name.
ESTIMATORS: Mapping[str, type[Estimator]] = MappingProxyType(
    {cls.name: cls for cls in (GRPO, DrGRPO, RLOO, ReinforcePP, ReinforcePPBaseline, StepGRPO)}
)

__all__ = [
    "ESTIMATORS",
    "Credit",
    "CreditBatch",
    "CriticFreeSettings",
    "DrGRPO",
    "Estimator",
    "EstimatorSettings",
    "GRPO",
    "RLOO",
    "ReinforcePP",
    "ReinforcePPBaseline",
    "StepGRPO",
    "ordered_steps",
]
