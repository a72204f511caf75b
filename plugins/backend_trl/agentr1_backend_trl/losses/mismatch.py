"""Weights for samples of an engine that is not exactly the policy in training: ``w = pi_train / pi_rollout``.

They are constants of the loss, never differentiated, and multiply a token's advantage.
"""

from __future__ import annotations

import torch

#: A weight that goes beyond e^60 is bounded here; all three functions cap or drop it anyway.
_LOG_CAP = 60.0


def tis(log_weights: torch.Tensor, high: float, low: float = 0.0) -> torch.Tensor:
    """Truncated: ``min(w, high)`` (Yao et al. 2025, "Your efficient RL framework secretly brings you off-policy RL
    training"), and at least ``low``."""
    return _weights(log_weights).clamp(min=low, max=high)


def mis(log_weights: torch.Tensor, high: float) -> torch.Tensor:
    """Masked: ``w`` where it is at most ``high``, else 0."""
    return icepop(log_weights, 0.0, high)


def icepop(log_weights: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """Masked on both sides: ``w`` where ``low <= w <= high``, else 0 (IcePop, Ling Team 2025, arXiv 2510.18855)."""
    weights = _weights(log_weights)
    return torch.where((weights >= low) & (weights <= high), weights, torch.zeros_like(weights))


def _weights(log_weights: torch.Tensor) -> torch.Tensor:
    return torch.exp(log_weights.detach().clamp(max=_LOG_CAP))
