"""Estimates of KL(policy, reference) from the sampled tokens (http://joschu.net/blog/kl-approx.html).

All three estimate the same number. As terms of a loss they differ: only the gradient of k2 is that of the KL on the
policy's own samples; k1's is zero on average, and k3's is the gradient of the reverse divergence. Multiplied by the
token's ratio, all three have the right one.
"""

from __future__ import annotations

import torch

#: k3's exponent is bounded here, before ``exp``; bounding its result instead gives a NaN gradient.
EXPONENT_CAP = 20.0


def kl_k1(logps: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """``x = log pi - log pi_ref``: unbiased, often negative."""
    return logps - reference


def kl_k2(logps: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """``x^2 / 2``: biased in value, unbiased in gradient."""
    return (logps - reference) ** 2 / 2


def kl_k3(logps: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """``exp(-x) + x - 1``: unbiased and never negative."""
    apart = reference - logps
    return torch.exp(apart.clamp(max=EXPONENT_CAP)) - apart - 1
