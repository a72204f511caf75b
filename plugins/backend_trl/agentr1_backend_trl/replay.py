"""The gradient of given episodes under a given row layout, without playing and without an optimiser step.

``agentr1 certify`` and the benchmark compare layouts with it: same tokens, same credit, same weights, same loss code
as in training. It never changes a weight, and leaves the trainer as it found it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from trl.models.utils import disable_gradient_checkpointing

from agentr1_backend_trl.global_credit import GlobalCredit
from agentr1_backend_trl.rows_to_tensors import Chunk
from agentr1_backend_trl.step_batch import ScoredBatch, lay_out_batch
from agentr1_backend_trl.tree_chunk import TreeSettings
from agentr1_core.credit import Credit, CreditBatch
from agentr1_core.mdp import FloatArray, Group
from agentr1_core.rollout import Collection
from agentr1_core.rows import Totals, make_rows, token_weights


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """How rows are laid out and cut."""

    merge: str = "none"
    tree: TreeSettings | None = None
    #: Rows of one forward, for padded rows.
    rows_per_forward: int = 1
    #: Accumulation steps that the rows are spread over.
    n_parts: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """What one forward and backward over all rows gave."""

    #: All gradients in a row, float64, on the CPU.
    gradient: torch.Tensor
    loss: float
    #: Trainer's log-prob of each trained token minus the one it was sampled with, in no particular order.
    gaps: FloatArray


def noise_credit(groups: Sequence[Group], seed: int = 0) -> Credit:
    """A standard normal advantage for each sampled token, so that every token pulls on the gradient by itself."""
    n = CreditBatch.from_groups(groups).total_tokens
    return Credit(advantages=np.random.default_rng(seed).standard_normal(n))


def part_of(groups: Sequence[Group], credit: Credit, pick: Callable[[int], bool]) -> tuple[list[Group], Credit]:
    """The trajectories whose number is picked, with their credit."""
    kept, advantages = [], []
    number = start = 0
    for group in groups:
        members = []
        for trajectory in group.trajectories:
            stop = start + trajectory.n_sampled
            if pick(number):
                members.append(trajectory)
                advantages.append(credit.advantages[start:stop])
            number, start = number + 1, stop
        kept.append(replace(group, trajectories=tuple(members), failed=()))
    return kept, Credit(advantages=np.concatenate([np.zeros(0), *advantages]))


def share_of_rank(trainer: Any, groups: Sequence[Group], credit: Credit, part: Sequence[Group], own: Credit) -> float:
    """What the weights of a part must be multiplied by where all groups share the optimiser step.

    All denominators of ``token_weights`` are products with a total, so that it is one number for all tokens.
    """
    plan = trainer.loss_plan
    totals = Totals.of(make_rows(groups, credit))
    rows = make_rows(part, own)
    whole = token_weights(rows, plan.mode, plan.constant, totals)[0].max()
    return float(whole / token_weights(rows, plan.mode, plan.constant)[0].max())


def chunks_of(trainer: Any, groups: Sequence[Group], credit: Credit, layout: Layout) -> list[list[Chunk]]:
    """The chunks of each part of one optimiser step; with several processes, all of them call it."""
    with _laid_out(trainer, layout):
        rows = make_rows(groups, credit, merge=trainer.merge)
        n = CreditBatch.from_groups(groups).n_trajectories
        scored = ScoredBatch(
            Collection(tuple(groups), 0.0), GlobalCredit(credit, n, 0, np.zeros(n)), rows, rows.ledger, {}, {}
        )
        return lay_out_batch(
            trainer,
            scored,
            n_windows=1,
            parts_per_window=layout.n_parts,
            rows_per_forward=layout.rows_per_forward,
            seed=(0,),
        )


def replay(
    trainer: Any,
    groups: Sequence[Group],
    credit: Credit,
    layout: Layout,
    change: Callable[[Chunk], None] | None = None,
) -> Replayed:
    """Forward and backward over all rows.

    With several processes all of them call it. Each gets the gradient of its own rows, weighted as in training: the
    mean over the processes is that of the optimiser step.

    Args:
        trainer: A ``StepGRPOTrainer``.
        groups: The episodes.
        credit: Theirs.
        layout: How to lay them out.
        change: Damages a chunk before it runs, for negative controls.
    """
    parts = chunks_of(trainer, groups, credit, layout)
    with _laid_out(trainer, layout), _own_gradients(trainer.model):
        trainer.model.train()
        total, gaps = 0.0, []
        for chunk in (chunk for part in parts for chunk in part):
            if change is not None:
                change(chunk)
            with (
                torch.no_grad(),
                disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs),
            ):
                trainer._score_before_update(chunk, trainer.corrects_engine)
            loss, logps = _run(trainer, chunk)
            loss.backward()
            total += float(loss.detach())
            trained = chunk["loss_mask"].bool()
            gaps.append((logps - chunk["sampling_logps"])[trained].double().cpu().numpy())
        found = [p.grad.detach().reshape(-1).double().cpu() for p in _trained(trainer.model) if p.grad is not None]
    return Replayed(torch.cat(found), total, np.concatenate(gaps))


def apart(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative difference of two gradients."""
    return float((found - wanted).norm() / wanted.norm())


def _run(trainer: Any, chunk: Chunk) -> tuple[torch.Tensor, torch.Tensor]:
    kept: list[torch.Tensor] = []
    take = trainer.take_forward

    def keep() -> tuple[torch.Tensor, torch.Tensor]:
        forward: tuple[torch.Tensor, torch.Tensor] = take()
        kept.append(forward[0].detach())
        return forward

    trainer.take_forward = keep
    try:
        with trainer.compute_loss_context_manager():
            loss = trainer._compute_loss(trainer.model, chunk)
    finally:
        del trainer.take_forward
    return loss, kept[0]


def _trained(model: Any) -> list[Any]:
    return [p for p in model.parameters() if p.requires_grad]


@contextlib.contextmanager
def _own_gradients(model: Any) -> Iterator[None]:
    before = [(p, p.grad) for p in _trained(model)]
    for p, _ in before:
        p.grad = None
    was_training = model.training
    try:
        yield
    finally:
        model.train(was_training)
        for p, grad in before:
            p.grad = grad


@contextlib.contextmanager
def _laid_out(trainer: Any, layout: Layout) -> Iterator[None]:
    """The trainer with another layout, its figures and its schedule put aside."""
    during = {
        "merge": layout.merge,
        "tree": layout.tree or trainer.tree,
        "current_gradient_accumulation_steps": trainer.args.steps_per_generation,
        "tokens": type(trainer.tokens)(),
    }
    missing = object()
    before = {name: trainer.__dict__.get(name, missing) for name in during}
    for name, value in during.items():
        setattr(trainer, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is missing:
                delattr(trainer, name)
            else:
                setattr(trainer, name, value)
