"""The sequence ratio of GSPO, where the sequence is one step's action.

Whole rows would not do: a merged row holds several actions, and merging must not change the loss.
"""

from __future__ import annotations

import torch


def gspo_log_ratio(
    logps: torch.Tensor, log_ratios: torch.Tensor, mask: torch.Tensor, spans: torch.Tensor
) -> torch.Tensor:
    """``log s = sg(mean over the span of log r) + log pi - sg(log pi)``, ``(B, C)`` (GSPO-token, Zheng et al.,
    arXiv 2507.18071: the value of the span's ratio, the gradient of each token's log-prob).

    Args:
        logps: Under the policy in training, ``(B, C)``.
        log_ratios: From ``log_ratio``, ``(B, C)``.
        mask: 1 for tokens that train.
        spans: The step that sampled each token, -1 for none.
    """
    kept = torch.where(mask.bool(), logps, torch.zeros_like(logps))
    return span_mean(log_ratios, mask, spans).detach() + kept - kept.detach()


def span_mean(values: torch.Tensor, mask: torch.Tensor, spans: torch.Tensor) -> torch.Tensor:
    """The mean over the trained tokens of each token's span, ``(B, C)``; 0 outside spans and for spans without any."""
    kept = mask.bool() & (spans >= 0)
    slots = spans.clamp(min=-1) + 1  # -1, the context, has slot 0
    n_slots = int(slots.max()) + 1 if slots.numel() else 1
    shape = (values.size(0), n_slots)
    sums = values.new_zeros(shape).scatter_add(1, slots, torch.where(kept, values, torch.zeros_like(values)))
    counts = values.new_zeros(shape).scatter_add(1, slots, kept.to(values.dtype))
    means = (sums / counts.clamp(min=1)).gather(1, slots)
    return torch.where(spans >= 0, means, torch.zeros_like(means))
