"""CISPO: the ratio weighs the REINFORCE loss, clipped and without a gradient of its own, so no token is ever lost."""

from __future__ import annotations

import torch

from agentr1_backend_trl.losses.ratio import bounded_exp


def cispo_loss(
    logps: torch.Tensor, log_ratios: torch.Tensor, advantages: torch.Tensor, low: float, high: float
) -> torch.Tensor:
    """``-sg(clip(r, 1 - low, 1 + high)) A log pi``, ``(B, C)`` (MiniMax-M1, arXiv 2506.13585).

    Masked tokens must have a finite ``logps``; ``log_ratio`` has made their ratio 1.
    """
    return -bounded_exp(log_ratios.detach()).clamp(1 - low, 1 + high) * advantages * logps
