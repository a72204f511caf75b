"""How each of TRL's loss types is trained: whose per-token formula it uses, and how token losses are averaged.

The trainer asks ``plan_loss`` once at start-up. The per-token formulas themselves stay in TRL.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentr1_core.errors import ConfigError
from agentr1_core.rows import WeightMode


@dataclass(frozen=True, slots=True)
class LossPlan:
    """What TRL is told to compute and what this package does about the average."""

    #: TRL's ``loss_type`` whose per-token formula is used. ``dapo`` stands for all that clip like PPO.
    formula: str
    #: Mode of ``agentr1_core.rows.token_weights``.
    mode: WeightMode
    #: Divisor of the ``dr-grpo`` mode, in tokens.
    constant: float | None = None


def plan_loss(loss_type: str, max_completion_length: int) -> LossPlan:
    """The plan for a loss type of ``GRPOConfig``.

    TRL averages ``grpo``, ``sapo``, ``dr_grpo`` and ``luspo`` over rows. Here the same average is taken over
    trajectories, so that an episode of ten steps weighs as much as one of two, however its steps lie in rows.

    Raises:
        ConfigError: TRL has no such loss type, or it is not known here.
    """
    match loss_type:
        case "dapo" | "bnpo":
            return LossPlan("dapo", "token-mean")
        case "cispo" | "vespo":
            return LossPlan(loss_type, "token-mean")
        case "grpo":
            return LossPlan("dapo", "traj-mean-token-mean")
        case "sapo":
            return LossPlan("sapo", "traj-mean-token-mean")
        case "dr_grpo":
            return LossPlan("dapo", "dr-grpo", float(max_completion_length))
        case "luspo":
            return LossPlan("dapo", "traj-mean-token-sum")
    known = "dapo, bnpo, cispo, vespo, grpo, sapo, dr_grpo, luspo"
    raise ConfigError(f"Unknown loss_type '{loss_type}'.", f"Use one of: {known}.")
