"""The clipped surrogate of PPO, with dual clipping for bad actions whose ratio exploded.

Given GSPO's span ratios in place of token ratios it is the loss of GSPO too.
"""

from __future__ import annotations

import torch

from agentr1_backend_trl.losses.ratio import bounded_exp


def ppo_loss(
    log_ratios: torch.Tensor, advantages: torch.Tensor, low: float, high: float, dual_clip: float | None = None
) -> torch.Tensor:
    """``max(-A r, -A clip(r, 1 - low, 1 + high))``, ``(B, C)`` (Schulman et al., arXiv 1707.06347, equation 7).

    With ``dual_clip`` c > 1 the loss of a token with A < 0 is at most ``-c A`` (Ye et al., arXiv 1912.09729):
    without it a ratio of e^19 gives a gradient of 1.8e8.

    Args:
        log_ratios: From ``log_ratio`` or ``gspo_log_ratio``, ``(B, C)``.
        advantages: ``(B, C)``.
        low: How far below 1 a ratio still counts.
        high: How far above 1.
        dual_clip: c, or ``None``.
    """
    ratio = bounded_exp(log_ratios)
    loss = torch.maximum(-advantages * ratio, -advantages * ratio.clamp(1 - low, 1 + high))
    if dual_clip is None:
        return loss
    return torch.where(advantages < 0, torch.minimum(loss, -dual_clip * advantages), loss)


def clipped_share(
    log_ratios: torch.Tensor, advantages: torch.Tensor, low: float, high: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """1 for tokens whose gradient the lower and the upper clip stop, ``(B, C)`` each."""
    ratio = bounded_exp(log_ratios.detach())
    return ((ratio < 1 - low) & (advantages < 0)).float(), ((ratio > 1 + high) & (advantages > 0)).float()
