"""Correction for an engine that does not sample from exactly the policy in training.

Engines with weights or kernels of their own give slightly other log-probs than the trainer. The trainer multiplies
each token's policy loss by ``pi_trainer / pi_engine``, truncated or masked as TRL's ``vllm_importance_sampling_*``
settings say; the sequence of the sequence-level modes is one step's action.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from agentr1_core.errors import ConfigError

_MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")


@dataclass(frozen=True, slots=True)
class ImportanceCorrection:
    """How the ratio is bounded (truncated: Yao et al. 2025, "Your efficient RL framework secretly brings you
    off-policy RL training"; masked: as TRL's ``*_mask`` modes)."""

    mode: str
    clip_max: float = math.inf
    clip_min: float = 0.0

    @classmethod
    def from_args(cls, args: Any, cap: float | None) -> ImportanceCorrection | None:
        """The correction that ``GRPOConfig`` asks for; ``cap`` overrides it with token-level truncation.

        Raises:
            ConfigError: The mode is unknown or the cap is not positive.
        """
        if cap is not None:
            if not cap > 0:
                raise ConfigError(f"importance_cap is {cap}.", "Give a positive number, or None for TRL's settings.")
            return cls("token_truncate", cap)
        if not args.vllm_importance_sampling_correction:
            return None
        mode = args.vllm_importance_sampling_mode
        if mode not in _MODES:
            raise ConfigError(f"vllm_importance_sampling_mode is '{mode}'.", f"Use one of: {', '.join(_MODES)}.")
        top, low = args.vllm_importance_sampling_clip_max, args.vllm_importance_sampling_clip_min
        return cls(mode, math.inf if top is None else top, 0.0 if low is None else low)

    def ratio(
        self, trainer: torch.Tensor, engine: torch.Tensor, mask: torch.Tensor, spans: torch.Tensor
    ) -> torch.Tensor:
        """The bounded ratio of each token, ``(B, C)``; 1 where the mask is 0.

        Args:
            trainer: Log-probs under the trainer's weights at sampling time, ``(B, C)``.
            engine: Log-probs the engine reported, ``(B, C)``.
            mask: 1 for tokens that train, ``(B, C)``.
            spans: The step that sampled each token, -1 for none, ``(B, C)``.
        """
        gap = torch.where(mask.bool(), trainer - engine, torch.zeros_like(trainer))
        if self.mode.startswith("sequence"):
            slots = spans.clamp(min=-1) + 1  # -1, the context, has slot 0
            sums = gap.new_zeros(gap.size(0), int(slots.max()) + 1).scatter_add_(1, slots, gap)
            gap = sums.gather(1, slots)
        ratio = torch.exp(gap.clamp(max=60.0))  # exp must not overflow before it is bounded
        if self.mode.endswith("mask"):
            ratio = torch.where((ratio > self.clip_max) | (ratio < self.clip_min), torch.zeros_like(ratio), ratio)
        else:
            ratio = ratio.clamp(min=self.clip_min, max=self.clip_max)
        return torch.where(mask.bool(), ratio, torch.ones_like(ratio))
