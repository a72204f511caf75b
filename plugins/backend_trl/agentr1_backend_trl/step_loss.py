"""The loss of one chunk of rows: TRL's per-token formulas under an exact average over the optimiser step.

The trainer's ``_compute_loss`` comes here. TRL's formulas are homogeneous in the advantage, so the weight of each
token is folded into it and TRL's own aggregation is cancelled out; the KL and entropy terms are not, and are added
beside it with the same weights. Masks stay 0 or 1, so that nothing TRL averages is distorted.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import torch

from agentr1_backend_trl.figures import note_chunk
from agentr1_backend_trl.rows_to_tensors import Chunk

#: Figures that TRL computes by itself for its own formulas; the others are taken over whole optimiser steps here.
_TRL_FIGURES = ("aux_loss", "vespo/phi_seq_mean")


def step_loss(trainer: Any, model: Any, chunk: Chunk, trl_loss: Callable[..., torch.Tensor]) -> torch.Tensor:
    """This rank's share of the loss, times the number of ranks, because gradients are averaged over them.

    Args:
        trainer: The ``StepGRPOTrainer``.
        model: What to run forward.
        chunk: The rows; B rows with C completion positions.
        trl_loss: ``GRPOTrainer._compute_loss`` bound to the trainer.
    """
    training = trainer.model.training
    accumulation = trainer.current_gradient_accumulation_steps if training else 1
    per_generation = trainer.args.steps_per_generation if training else 1
    n_processes = trainer.accelerator.num_processes
    # Where several generation batches share an optimiser step, each counts by its share of the accumulation steps.
    scale = n_processes * (per_generation / accumulation if training and trainer.schedule.shared else 1.0)
    mask, advantages = chunk["loss_mask"], chunk["advantages"]
    weights = chunk["weights"] * scale
    inputs = {name: chunk[name] for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")}
    inputs["tool_mask"] = mask
    inputs["advantages"] = advantages * _folded(trainer, weights, mask, accumulation, per_generation)
    inputs["num_items_in_batch"] = torch.tensor(float(n_processes), device=mask.device)
    if "old_logps" in chunk:
        inputs["old_per_token_logps"] = chunk["old_logps"]
    if trainer.corrects_engine:
        inputs["sampling_per_token_logps"] = chunk["sampling_logps"]
        if trainer.loss_plan.formula == "vespo":  # the one formula that wants the ratio inside
            inputs["importance_sampling_ratio"] = chunk["is_ratio"]
    with _policy_term_only(trainer, chunk["share"]):
        loss = trl_loss(model, inputs)
        logps, entropies = trainer.take_forward()

    log_ratio = _log_ratio(trainer, logps, chunk.get("old_logps"), mask)
    kl = None
    if trainer.beta != 0.0:
        # k3 of http://joschu.net/blog/kl-approx.html, as in TRL
        apart = chunk["ref_logps"] - logps
        kl = torch.exp(apart) - apart - 1
        if trainer.args.use_bias_correction_kl:
            kl = kl * torch.exp(log_ratio)
        loss = loss + trainer.beta * (torch.where(mask.bool(), kl, torch.zeros_like(kl)) * weights).sum()
    if trainer.entropy_coef != 0.0:
        loss = loss - trainer.entropy_coef * (entropies * mask).sum() * scale / max(chunk["window_tokens"], 1)
    _note(trainer, chunk, logps.detach(), entropies, log_ratio.detach(), kl, loss)
    return loss


def _folded(
    trainer: Any, weights: torch.Tensor, mask: torch.Tensor, accumulation: int, per_generation: int
) -> torch.Tensor:
    """What an advantage is multiplied by, so that TRL's aggregation gives ``sum(weights * token loss)``."""
    if trainer.loss_plan.formula == "sapo":  # mean over rows of means over their tokens, over the accumulation steps
        tokens = mask.sum(1, keepdim=True).clamp(min=1)
        return weights * tokens * mask.size(0) * accumulation
    # sum over tokens / (num_items_in_batch / processes * accumulation / steps_per_generation), the first quotient 1
    return weights * (accumulation / per_generation)


def _log_ratio(trainer: Any, logps: torch.Tensor, old: torch.Tensor | None, mask: torch.Tensor) -> torch.Tensor:
    ratio = logps - (logps.detach() if old is None else old)
    if trainer.importance_sampling_level == "sequence":
        ratio = ((ratio * mask).sum(1, keepdim=True) / mask.sum(1, keepdim=True).clamp(min=1)).expand(mask.shape)
    return ratio


@contextlib.contextmanager
def _policy_term_only(trainer: Any, share: float) -> Iterator[None]:
    """Let TRL compute the policy term of a chunk and nothing else; its metrics of the chunk are not logged."""
    scratch: dict[str, Any] = {"train": defaultdict(list), "eval": defaultdict(list)}
    during = {
        "loss_type": trainer.loss_plan.formula,
        "beta": 0.0,
        "_entropy_bonus_enabled": False,
        "_metrics": scratch,
        "router_aux_loss_coef": trainer.router_aux_loss_coef * share,
    }
    before = {name: getattr(trainer, name) for name in during}
    for name, value in during.items():
        setattr(trainer, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(trainer, name, value)
    mode = "train" if trainer.model.training else "eval"
    for name in _TRL_FIGURES:
        if scratch[mode][name]:
            trainer._metrics[mode][name].extend(scratch[mode][name])


def _note(
    trainer: Any,
    chunk: Chunk,
    logps: torch.Tensor,
    entropies: torch.Tensor,
    log_ratio: torch.Tensor,
    kl: torch.Tensor | None,
    loss: torch.Tensor,
) -> None:
    """Add the chunk to the figures of the optimiser step."""
    advantages, ratio = chunk["advantages"], torch.exp(log_ratio)
    if trainer.loss_plan.formula == "cispo":
        low = torch.zeros_like(advantages)
        high = ((ratio > trainer.epsilon_high) & (advantages > 0)).float()
    else:
        low = ((ratio < 1 - trainer.epsilon_low) & (advantages < 0)).float()
        high = ((ratio > 1 + trainer.epsilon_high) & (advantages > 0)).float()
    clipped = {"clip_ratio/low_mean": low, "clip_ratio/high_mean": high}
    note_chunk(trainer.tokens, chunk, logps, loss, kl=kl, entropy=entropies, **clipped)
