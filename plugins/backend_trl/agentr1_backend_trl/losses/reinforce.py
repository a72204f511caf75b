"""REINFORCE: the plain policy gradient, without any ratio; right for samples of the policy in training only."""

from __future__ import annotations

import torch


def reinforce_loss(logps: torch.Tensor, advantages: torch.Tensor) -> torch.Tensor:
    """``-A log pi``, ``(B, C)`` (Williams 1992)."""
    return -advantages * logps
