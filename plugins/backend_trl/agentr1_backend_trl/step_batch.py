"""From one generation batch of the data loader to the parts that TRL accumulates over.

``play_batch`` plays the episodes and adds TRL's reward functions, ``lay_out_batch`` turns them into padded chunks
with the weight of every token. Both reach their collectives equally often on every rank, whatever each one collected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from accelerate.utils import gather, gather_object

from agentr1_backend_trl.figures import ledger_figures, pooled_episode_figures, pooled_ledger
from agentr1_backend_trl.global_credit import GlobalCredit, estimate_globally, leave_out_small_groups
from agentr1_backend_trl.reward_functions import add_rewards, map_trajectories, reward_inputs
from agentr1_backend_trl.rows_to_tensors import Chunk, make_chunk
from agentr1_backend_trl.tree_chunk import TreeChunk, row_tokens
from agentr1_backend_trl.tree_forward import cost_for
from agentr1_backend_trl.windows import cut_into_chunks, deal_pieces, deal_trajectories
from agentr1_core.errors import EnvError
from agentr1_core.mdp import Group
from agentr1_core.rollout import Collection, Play
from agentr1_core.rows import Ledger, RowBatch, Totals, count_unique, make_rows, plan_trees, token_weights


@dataclass(frozen=True, slots=True)
class ScoredBatch:
    """This rank's episodes with their credit, and the figures of all ranks."""

    collection: Collection
    credit: GlobalCredit
    rows: RowBatch
    ledger: Ledger
    figures: dict[str, float]
    #: What reward functions logged about each trajectory through ``log_extra``, by its group and its own id.
    extras: Mapping[tuple[str, str], Mapping[str, Any]]


def play_batch(trainer: Any, inputs: Sequence[dict[str, Any]], stream: str, *, training: bool) -> ScoredBatch:
    """Play one episode for each row of this rank's part of the batch, and score it.

    Args:
        trainer: The ``StepGRPOTrainer``.
        inputs: Rows of the data set, each repeated for the episodes of its group.
        stream: Names the batch in ids and seeds.
        training: ``False`` in evaluation.

    Raises:
        EnvError: No episode on any rank is usable; the causes are in the message.
        RewardError: A reward is not a finite number.
    """
    size = trainer.num_generations if training else trainer.num_generations_eval
    rank = trainer.accelerator.process_index
    positions = [rank * len(inputs) + i for i in range(len(inputs))]  # every rank has equally many rows
    plays = [
        Play(trainer.task_of(row, f"row {place} of batch {stream}"), f"{stream}/{place // size}", place % size)
        for row, place in zip(inputs, positions, strict=True)
    ]
    with trainer.sampling_model():
        found = trainer.player.play(plays, training=training)
    check_some_usable(found)
    extras: dict[tuple[str, str], dict[str, Any]] = {}
    if trainer.reward_funcs:
        found, extras = _with_reward_functions(trainer, inputs, plays, found)
    least = min(trainer.min_group_size, size) if training else 1
    found = replace(found, groups=leave_out_small_groups(found.groups, least))
    shuffle = (trainer.args.seed, *stream.encode()) if trainer.shuffle_advantages and training else None
    credit = estimate_globally(trainer.estimator, trainer.credit_batch(found.groups), rank, shuffle=shuffle)
    rows = make_rows(found.groups, credit.own, merge=trainer.merge)
    ledger, merged = pooled_ledger(rows)
    figures = {
        **pooled_episode_figures(found, credit.returns),
        **{name: float(value) for name, value in credit.own.counters.items()},
        **ledger_figures(ledger),
        "share_merged": merged,
    }
    if trainer.merge == "tree":
        figures["tree/token_ratio"] = _token_ratio(rows)
    return ScoredBatch(found, credit, rows, ledger, figures, extras)


def check_some_usable(found: Collection) -> None:
    """Every episode of every rank failed: say why. One gather."""
    causes = Counter(t.error or t.stop_reason.value for t in found.failed)
    parts = gather_object([(len(found.trajectories), causes)])
    if sum(usable for usable, _ in parts):
        return
    told: Counter[str] = Counter()
    for _, part in parts:
        told.update(part)
    listed = "; ".join(f"{count} times: {cause}" for cause, count in told.most_common(3))
    raise EnvError(f"Every episode of the batch failed. {listed}", "Mend the first cause and run again.")


def _with_reward_functions(
    trainer: Any, inputs: Sequence[dict[str, Any]], plays: Sequence[Play], found: Collection
) -> tuple[Collection, dict[tuple[str, str], dict[str, Any]]]:
    """Add TRL's reward functions, and take what they logged. One gather, inside TRL."""
    by_id = {t.id: t for t in found.trajectories}
    slots = [by_id.get(f"{play.group_id}/{play.member}") for play in plays]
    usable = next((trajectory for trajectory in slots if trajectory is not None), None)
    if usable is None:  # nothing to score on this rank; TRL's gather still has to be met by all
        empty = torch.zeros(len(plays), len(trainer.reward_funcs), device=trainer.accelerator.device)
        gather(empty)
        return found, {}
    # TRL gathers equally many rewards from every rank, so a failed episode's place is taken by a usable one.
    filled = [usable if trajectory is None else trajectory for trajectory in slots]
    scores = trainer._calculate_rewards(*reward_inputs(inputs, filled))
    first = trainer.accelerator.process_index * len(plays)
    own = scores[first : first + len(plays)] * trainer.reward_weights.to(scores.device)
    columns = {name: list(logged) for name, logged in trainer._pending_extra_logs.items()}
    trainer._pending_extra_logs.clear()
    changed, extras = {}, {}
    for place, (trajectory, values) in enumerate(zip(slots, own.tolist(), strict=True)):
        if trajectory is not None:
            extras[trajectory.group_id, trajectory.id] = {
                name: logged[place] for name, logged in columns.items() if len(logged) == len(slots)
            }
            named = {
                name: None if np.isnan(value) else value
                for name, value in zip(trainer.reward_func_names, values, strict=True)
            }
            changed[trajectory.group_id, trajectory.id] = add_rewards(trajectory, named)
    return replace(found, groups=map_trajectories(found.groups, changed)), extras


def _token_ratio(batch: RowBatch) -> float:
    """Tokens of separate rows for each unique one, over all ranks; 1 without rows. One gather."""
    tokens = [row_tokens(row, 0) for row in batch.rows]
    parts = gather_object([(sum(map(len, tokens)), count_unique(tokens))])
    unique = sum(part[1] for part in parts)
    return float(sum(part[0] for part in parts) / unique) if unique else 1.0


def lay_out_batch(
    trainer: Any,
    scored: ScoredBatch,
    *,
    n_windows: int,
    parts_per_window: int,
    rows_per_forward: int,
    seed: Sequence[int],
) -> list[list[Chunk]]:
    """The chunks of each part, window after window. One gather."""
    windows = deal_trajectories(scored.credit.n_trajectories, n_windows, seed)
    own = _by_window(scored.rows, scored.collection.groups, windows[scored.credit.first :], n_windows)
    trees = [_trees_of(trainer, part) for part in own]
    sizes = [
        len(part.rows) if tree is None else [len(rows) for rows in tree] for part, tree in zip(own, trees, strict=True)
    ]
    everywhere = gather_object([[(Totals.of(part), size) for part, size in zip(own, sizes, strict=True)]])
    parts: list[list[Chunk]] = []
    for number, batch in enumerate(own):
        totals = Totals()
        for rank in everywhere:
            totals = totals + rank[number][0]
        of_ranks = [rank[number][1] for rank in everywhere]
        weights = token_weights(batch, trainer.loss_plan.mode, trainer.loss_plan.constant, totals)
        tree = trees[number]
        if tree is None:
            cut = cut_into_chunks([len(row) for row in batch.rows], max(of_ranks), parts_per_window, rows_per_forward)
        else:
            cut = deal_pieces(tree, of_ranks, parts_per_window)
        parts += [
            [_chunk(trainer, batch, weights, chunk, totals.tokens, 1.0 / len(part)) for chunk in part] for part in cut
        ]
        for chunk in (chunk for part in parts[-parts_per_window:] for chunk in part):
            chunk["window_steps"] = totals.steps
    return parts


def _trees_of(trainer: Any, batch: RowBatch) -> list[list[int]] | None:
    """Rows of each tree, or ``None`` where rows are run padded."""
    if trainer.merge != "tree":
        return None
    rows = [row_tokens(row, 0) for row in batch.rows]
    # A row longer than the limit cannot be cut; the limit gives way to it, as padded rows would.
    limit = max([trainer.tree.max_tokens, *map(len, rows)])
    return plan_trees(rows, limit, cost_for(trainer, trainer.model) if trainer.tree.path == "auto" else None)


def _chunk(
    trainer: Any,
    batch: RowBatch,
    weights: Sequence[Any],
    numbers: Sequence[int | None],
    window_tokens: int,
    share: float,
) -> Chunk:
    rows = [None if i is None else batch.rows[i] for i in numbers]
    filler = trainer._tokenizer.eos_token_id
    chunk = make_chunk(
        rows,
        [None if i is None else weights[i] for i in numbers],
        pad_token_id=trainer._tokenizer.pad_token_id,
        padding_row_token=filler,
        pad_to_multiple_of=trainer.pad_to_multiple_of,
        window_tokens=window_tokens,
        share=share,
        device=trainer.accelerator.device,
    )
    if trainer.merge == "tree":
        chunk["tree"] = TreeChunk.of(rows, filler, chunk["completion_ids"].size(1))
    return chunk


def _by_window(
    batch: RowBatch, groups: Sequence[Group], windows: Sequence[int] | Any, n_windows: int
) -> list[RowBatch]:
    """The rows of each window, all rows of a trajectory in the same one."""
    keys = [(group.id, trajectory.id) for group in groups for trajectory in group.trajectories]
    home = {key: int(windows[i]) for i, key in enumerate(keys)}
    found = []
    for window in range(n_windows):
        rows = tuple(row for row in batch.rows if home[row.group_id, row.trajectory_id] == window)
        n_steps = sum(len(row.step_indices) for row in rows)
        owners = {(row.group_id, row.trajectory_id) for row in rows}
        found.append(replace(batch, rows=rows, n_trajectories=len(owners), n_steps=n_steps, ledger=Ledger()))
    return found
