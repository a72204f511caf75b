"""The critic's loss: squared error to the return, optionally clipped around the value at sampling time."""

from __future__ import annotations

import torch


def value_loss(
    values: torch.Tensor, returns: torch.Tensor, old: torch.Tensor, clip: float | None = None
) -> torch.Tensor:
    """``1/2 max((V - R)^2, (old + clip(V - old, -c, c) - R)^2)``, elementwise (the value clipping of PPO2,
    https://github.com/openai/baselines/blob/master/baselines/ppo2/model.py); without ``clip`` the first term alone.
    """
    error = (values - returns) ** 2
    if clip is None:
        return error / 2
    bounded = old + (values - old).clamp(-clip, clip)
    return torch.maximum(error, (bounded - returns) ** 2) / 2
