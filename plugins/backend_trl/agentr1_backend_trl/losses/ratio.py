"""Log-ratios between two policies, safe to exponentiate.

Every loss starts here. A masked token is made 0 before any ``exp``, because a ``where`` afterwards would still give
its NaN to the gradient.
"""

from __future__ import annotations

import torch

#: Above it a ratio is taken as exp(20), about 5e8, and its gradient is 0; callers count such tokens.
LOG_RATIO_CAP = 20.0


def log_ratio(logps: torch.Tensor, old: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """``log pi / pi_old`` of each token, ``(B, C)``; exactly 0 where the mask is, whatever stands there."""
    kept = mask.bool()
    zero = torch.zeros_like(logps)
    return torch.where(kept, logps, zero) - torch.where(kept, old, zero)


def bounded_exp(log_ratios: torch.Tensor) -> torch.Tensor:
    """``exp`` that cannot overflow: its input is bounded, so that no gradient becomes NaN."""
    return torch.exp(log_ratios.clamp(max=LOG_RATIO_CAP))
