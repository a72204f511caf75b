"""The numbers a run reports: of the episodes, pooled over ranks, and of the tokens in an optimiser step.

Pure but for one gather or reduce in each function that says so. Token figures are means over the trained tokens of
the whole optimiser step, never means of micro-batch means, and padding rows enter none of them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather_object

from agentr1_core.metrics import describe_collection
from agentr1_core.rollout import Collection
from agentr1_core.rows import Ledger, RowBatch

_SUMS = ("episodes", "episodes/failed")


def pooled_episode_figures(collection: Collection, returns: Sequence[float] | Any) -> dict[str, float]:
    """``describe_collection`` of the episodes of all ranks. One gather.

    Args:
        collection: This rank's episodes.
        returns: Return of each usable trajectory of all ranks.
    """
    trajectories = collection.trajectories
    weights: dict[str, float] = defaultdict(lambda: float(len(trajectories)))
    weights["actions/cut_share"] = float(sum(len(t.steps) for t in trajectories))
    for trajectory in trajectories:
        for name in trajectory.rewards:
            key = f"rewards/{name}"
            weights[key] = weights[key] + 1.0 if key in weights else 1.0
    own = describe_collection(collection)
    parts = gather_object([{key: (value, weights[key]) for key, value in own.items()}])
    figures: dict[str, float] = {}
    for key in sorted({key for part in parts for key in part}):
        found = [part[key] for part in parts if key in part]
        if key in _SUMS or key.startswith("count/"):
            figures[key] = sum(value for value, _ in found)
        elif key == "rollout_seconds":
            figures[key] = max(value for value, _ in found)
        else:
            total = sum(weight for _, weight in found)
            figures[key] = sum(value * weight for value, weight in found) / total if total else 0.0
    if len(returns):
        figures["reward_std"] = float(np.std(returns))  # a mean of the ranks' spreads would not be the spread
    return figures


def pooled_ledger(batch: RowBatch) -> tuple[Ledger, float]:
    """The token ledger of all ranks, and the share of steps that were merged into the row before them. One gather."""
    parts = gather_object([(batch.ledger, batch.n_steps, batch.merged_steps)])
    ledger = Ledger()
    for part, _, _ in parts:
        ledger = ledger + part
    steps = sum(n for _, n, _ in parts)
    return ledger, (sum(merged for _, _, merged in parts) / steps if steps else 0.0)


def ledger_figures(ledger: Ledger) -> dict[str, float]:
    """The ledger as flat figures under ``ledger/``."""
    return {f"ledger/{name}": float(count) for name, count in ledger.as_dict().items()}


class TokenFigures:
    """Sums over the trained tokens of one optimiser step, on this rank."""

    def __init__(self) -> None:
        self._sums: dict[str, torch.Tensor] = {}
        self._max: torch.Tensor | None = None

    def add(self, mask: torch.Tensor, **per_token: torch.Tensor) -> None:
        """Add the tokens of one chunk: ``mask`` (B, C), each figure (B, C) or (B, 1)."""
        kept = mask.bool()
        self._plus("tokens", kept.sum())
        for name, values in per_token.items():
            values = values.detach().expand(mask.shape)
            self._plus(name, torch.where(kept, values, torch.zeros_like(values)).sum())

    def add_gap(self, mask: torch.Tensor, gap: torch.Tensor) -> None:
        """Add differences of log-probs, ``(B, C)``: their mean is kept as ``logprob_gap`` and their largest."""
        gap = torch.where(mask.bool(), gap.detach().abs(), torch.zeros_like(gap))
        self._plus("logprob_gap", gap.sum())
        largest = gap.max()
        self._max = largest if self._max is None else torch.maximum(self._max, largest)

    def add_loss(self, loss: torch.Tensor) -> None:
        """Add this rank's share of the loss."""
        self._plus("loss", loss.detach())

    def reduce(self, accelerator: Any, names: Sequence[str]) -> dict[str, float]:
        """Figures over all ranks. One reduce and one gather; ``names`` must be the same on every rank."""
        zero = torch.zeros((), device=accelerator.device, dtype=torch.float32)
        fields = ["tokens", "loss", *names]
        local = torch.stack([self._sums.get(name, zero).float() for name in fields])
        total = dict(zip(fields, accelerator.reduce(local, reduction="sum").tolist(), strict=True))
        n_tokens = max(total["tokens"], 1.0)
        figures = {name: total[name] / n_tokens for name in names}
        largest = zero if self._max is None else self._max.float()
        if "logprob_gap" in names:
            figures["logprob_gap_max"] = float(accelerator.gather(largest.reshape(1)).max())
        # Each rank's loss was multiplied by their number, because gradients are averaged.
        return {"loss": total["loss"] / accelerator.num_processes, "tokens": total["tokens"], **figures}

    def _plus(self, name: str, value: torch.Tensor) -> None:
        value = value.detach()
        self._sums[name] = self._sums[name] + value if name in self._sums else value


def note_chunk(
    tokens: TokenFigures,
    chunk: Any,
    logps: torch.Tensor,
    loss: torch.Tensor,
    *,
    kl: torch.Tensor | None,
    **per_token: torch.Tensor,
) -> None:
    """Add one chunk to the figures of the optimiser step.

    Args:
        tokens: The figures.
        chunk: The rows.
        logps: What the trained policy says about their tokens, ``(B, C)``, detached.
        loss: This rank's share of the loss.
        kl: Divergence from the reference model at each token, where there is one.
        per_token: Further figures, ``(B, C)`` or ``(B, 1)`` each.
    """
    mask = chunk["loss_mask"]
    moved = torch.where(mask.bool(), logps - chunk["sampling_logps"], torch.zeros_like(logps)).clamp(max=60.0)
    per_token["drift"] = torch.expm1(moved) - moved  # k3 estimate of KL(behaviour policy, policy)
    if kl is not None:
        per_token["kl"] = kl
    if "is_ratio" in chunk:
        per_token["sampling/importance_sampling_ratio/mean"] = chunk["is_ratio"]
    tokens.add(mask, **per_token)
    tokens.add_gap(mask, chunk.get("old_logps", logps) - chunk["sampling_logps"])
    tokens.add_loss(loss)
