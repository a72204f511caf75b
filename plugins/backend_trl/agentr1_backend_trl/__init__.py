"""Step-level reinforcement learning with TRL.

Users import the trainers from here; the names are resolved at use, so that importing the package loads no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentr1_backend_trl.backend import TRLBackend
    from agentr1_backend_trl.rloo import StepRLOOTrainer
    from agentr1_backend_trl.rollout_func import step_rollout_func
    from agentr1_backend_trl.trainer import StepGRPOTrainer
    from agentr1_backend_trl.tree_chunk import TreeSettings

__all__ = ["StepGRPOTrainer", "StepRLOOTrainer", "TRLBackend", "TreeSettings", "step_rollout_func"]

_HOMES = {
    "StepGRPOTrainer": "agentr1_backend_trl.trainer",
    "StepRLOOTrainer": "agentr1_backend_trl.rloo",
    "TRLBackend": "agentr1_backend_trl.backend",
    "TreeSettings": "agentr1_backend_trl.tree_chunk",
    "step_rollout_func": "agentr1_backend_trl.rollout_func",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
