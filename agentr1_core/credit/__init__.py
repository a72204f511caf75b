"""Credit assignment: from the rewards of steps to an advantage for each sampled token, in numpy.

``CreditBatch`` is the input, ``Credit`` the output, ``Estimator`` the contract; there is one file per family.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from agentr1_core.credit.batch import CreditBatch, ordered_steps
from agentr1_core.credit.distill import Distill
from agentr1_core.credit.estimator import Credit, CriticFreeSettings, Estimator, EstimatorSettings
from agentr1_core.credit.gae import StepGAE, TokenGAE
from agentr1_core.credit.gigpo import GiGPO
from agentr1_core.credit.grpo import GRPO, DrGRPO
from agentr1_core.credit.reinforce import Reinforce, ReinforcePP, ReinforcePPBaseline
from agentr1_core.credit.rloo import RLOO
from agentr1_core.credit.step_grpo import StepGRPO

#: The estimators that come with the core, by name.
ESTIMATORS: Mapping[str, type[Estimator]] = MappingProxyType(
    {
        cls.name: cls
        for cls in (
            GRPO,
            DrGRPO,
            RLOO,
            Reinforce,
            ReinforcePP,
            ReinforcePPBaseline,
            StepGRPO,
            GiGPO,
            StepGAE,
            TokenGAE,
            Distill,
        )
    }
)

__all__ = [
    "ESTIMATORS",
    "Credit",
    "CreditBatch",
    "CriticFreeSettings",
    "Distill",
    "DrGRPO",
    "Estimator",
    "EstimatorSettings",
    "GRPO",
    "GiGPO",
    "RLOO",
    "Reinforce",
    "ReinforcePP",
    "ReinforcePPBaseline",
    "StepGAE",
    "StepGRPO",
    "TokenGAE",
    "ordered_steps",
]
