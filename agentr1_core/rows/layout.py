"""From groups and their credit to training rows: one row for each step, or one for each run of continued steps.

Backends call ``make_rows`` once per batch. Merging compares integer tokens only, never text, and never drops or
alters a token; what trains is the same either way.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from agentr1_core.credit import Credit
from agentr1_core.mdp import Group, TokenArray, Trajectory
from agentr1_core.rows.row import CONTEXT, RowBatch, TrainingRow
from agentr1_core.rows.select import Selection, TokenCount, TrainedStep, select_steps


def make_rows(
    groups: Sequence[Group],
    credit: Credit,
    *,
    merge: Literal["none", "linear", "tree"] = "none",
    max_length: int | None = None,
    policy_version: int | None = None,
    max_lag: int | None = None,
    zero_advantage: Literal["keep", "drop"] = "keep",
) -> RowBatch:
    """Lay out what trains, and account for every sampled token.

    Steps without a token to train get no row: an empty action, or one that is masked throughout. They can still be
    context of a later step.

    Args:
        groups: What was collected; failed trajectories are only counted, as dropped with their stop reason.
        credit: For exactly these groups, in ``CreditBatch.from_groups`` order.
        merge: ``"linear"`` puts a step into the row of the step before it if its prompt starts with exactly that
            step's prompt and action. A rewritten context, or another temperature or the like, opens a new row.
            ``"tree"`` lays out one row a step, like ``"none"``; what they share is found by ``plan_trees``.
        max_length: Most tokens of a row. A merged row is exactly as long as its last step alone, so only a single
            step can be too long; it is dropped whole (``too_long``), never cut.
        policy_version: Version of the weights that will be trained.
        max_lag: Mask tokens (``stale``) sampled by weights more than this many versions behind ``policy_version``.
        zero_advantage: ``"drop"`` leaves out steps whose advantages are all zero. They then also leave the
            denominators of ``token_weights``, as filtered groups do in DAPO.

    Raises:
        ValueError: The credit belongs to other groups.
        ConfigError: A limit makes no sense.
        DataError: Version spans are missing or do not cover an action.
    """
    count = TokenCount()
    rows: list[TrainingRow] = []
    n_trajectories = n_steps = 0
    rules = Selection(max_length, policy_version, max_lag, zero_advantage)
    for group, trajectory, steps in select_steps(groups, credit, rules, count):
        n_trajectories += bool(steps)
        n_steps += len(steps)
        runs = _continued_runs(steps) if merge == "linear" else [[step] for step in steps]
        rows += [_lay_out(group, trajectory, run) for run in runs]
    return RowBatch(
        rows=tuple(rows),
        ledger=count.close(),
        n_trajectories=n_trajectories,
        n_steps=n_steps,
        merged_steps=n_steps - len(rows),
    )


def _continued_runs(steps: Iterable[TrainedStep]) -> list[list[TrainedStep]]:
    runs: list[list[TrainedStep]] = []
    for step in steps:
        if runs and _continues(runs[-1][-1], step):
            runs[-1].append(step)
        else:
            runs.append([step])
    return runs


def _continues(before: TrainedStep, after: TrainedStep) -> bool:
    """Whether a token of ``before`` means the same in the row of ``after``: same context, same distribution."""
    head, action, prompt = before.step.prompt_ids, before.step.action, after.step.prompt_ids
    n = len(head)
    return (
        len(prompt) >= n + len(action)
        and np.array_equal(prompt[:n], head)
        and np.array_equal(prompt[n : n + len(action)], action.token_ids)
        and _shape_of(action.sampling) == _shape_of(after.step.action.sampling)
    )


def _shape_of(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """The sampling parameters that shape the distribution; a seed only picks from it."""
    return {name: value for name, value in sampling.items() if name != "seed"}


def _lay_out(group: Group, trajectory: Trajectory, run: Sequence[TrainedStep]) -> TrainingRow:
    first, last = run[0].step, run[-1].step
    n_prompt = len(first.prompt_ids)
    # A continued prompt holds all that came before it, so the last step spells out the whole row.
    completion: TokenArray = np.concatenate([last.prompt_ids[n_prompt:], last.action.token_ids]).astype(np.int32)
    n = len(completion)
    mask = np.zeros(n, dtype=np.bool_)
    logprobs, advantages, returns, values = np.zeros((4, n), dtype=np.float32)
    span_ids, versions = np.full((2, n), CONTEXT, dtype=np.int32)
    for part in run:
        start = len(part.step.prompt_ids) - n_prompt
        span = slice(start, start + len(part.step.action))
        mask[span] = part.mask
        logprobs[span] = np.where(part.mask, part.step.action.logprobs, 0.0)
        advantages[span] = np.where(part.mask, part.advantages, 0.0)
        if part.returns is not None:
            returns[span] = np.where(part.mask, part.returns, 0.0)
        if part.values is not None:
            values[span] = np.where(part.mask, part.values, 0.0)
        span_ids[span] = part.step.index
        versions[span] = part.versions
    return TrainingRow(
        prompt_ids=first.prompt_ids,
        completion_ids=completion,
        mask=mask,
        logprobs=logprobs,
        advantages=advantages,
        returns=returns if run[0].returns is not None else None,
        span_ids=span_ids,
        versions=versions,
        trajectory_id=trajectory.id,
        group_id=group.id,
        step_indices=tuple(part.step.index for part in run),
        sampling=first.action.sampling,
        values=values if run[0].values is not None else None,
    )
