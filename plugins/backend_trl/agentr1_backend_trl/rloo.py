"""``StepRLOOTrainer``: REINFORCE leave-one-out (Ahmadian et al., arXiv 2402.14740) on step-level transitions.

It is ``StepGRPOTrainer`` with the ``rloo`` estimator and the loss summed over the tokens of a trajectory, which on
policy has RLOO's gradient. Unlike ``trl.RLOOTrainer`` it clips ratios by token, and a KL term goes into the loss
instead of the reward.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from trl import GRPOConfig, RLOOConfig

from agentr1_backend_trl.trainer import StepGRPOTrainer
from agentr1_core.errors import ConfigError


class StepRLOOTrainer(StepGRPOTrainer):
    """RLOO on the rows of ``StepGRPOTrainer``; takes the same arguments.

    Args:
        args: A ``GRPOConfig``, whose ``loss_type`` decides as usual, or an ``RLOOConfig``.

    Raises:
        ConfigError: The ``RLOOConfig`` normalises advantages or clips rewards, which has no counterpart here.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | RLOOConfig | None = None,
        *more: Any,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("estimator", "rloo")
        super().__init__(model, reward_funcs, _as_grpo(args, model), *more, **kwargs)


def _as_grpo(args: GRPOConfig | RLOOConfig | None, model: Any) -> GRPOConfig:
    if args is None:
        name = model if isinstance(model, str) else model.config._name_or_path
        return GRPOConfig(f"{name.split('/')[-1]}-RLOO", loss_type="luspo")
    if isinstance(args, GRPOConfig):
        return args
    if args.normalize_advantages:
        raise ConfigError("RLOOConfig.normalize_advantages has no counterpart.", "Set it to False.")
    if args.reward_clip_range is not None:
        raise ConfigError("RLOOConfig.reward_clip_range has no counterpart.", "Clip in the reward function.")
    known = {field.name for field in fields(GRPOConfig) if field.init}
    shared = {f.name: getattr(args, f.name) for f in fields(RLOOConfig) if f.init and f.name in known}
    del shared["generation_batch_size"]  # follows from steps_per_generation
    return GRPOConfig(**shared, loss_type="luspo", scale_rewards="none")
