"""Batches for the estimator kit: drawn by hypothesis, or written out as rewards and token counts.

A case is ``{group: {trajectory: [(reward, n_tokens), ...]}}``. Values of a critic are made up from the names, so that
a trajectory has the same ones wherever it stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from agentr1_core.credit import CreditBatch
from agentr1_core.mdp import Action, Group, Observation, Step, StopReason, Trajectory, float_array, token_array

#: Each step as its reward and the number of its sampled tokens.
Steps = Sequence[tuple[float | None, int]]
Case = Mapping[str, Mapping[str, Steps]]

#: Rewards in eighths, so that a spread is either none or a real one.
_REWARDS = st.none() | st.integers(-8, 8).map(lambda n: n / 8)
_STEPS = st.lists(st.tuples(_REWARDS, st.integers(0, 3)), min_size=1, max_size=4)


def _named(groups: list[list[list[tuple[float | None, int]]]]) -> dict[str, dict[str, Steps]]:
    return {f"g{g}": {f"t{i}": steps for i, steps in enumerate(group)} for g, group in enumerate(groups)}


#: Up to three groups of up to five trajectories of up to four steps; rewards may be missing, steps may be empty.
CASES = st.lists(st.lists(_STEPS, min_size=1, max_size=5), min_size=1, max_size=3).map(_named)


def groups_of(case: Case, cut_short: Iterable[tuple[str, str]] = ()) -> list[Group]:
    """The case as groups; trajectories named in ``cut_short`` end in a limit, all others in a terminal state."""
    cut = set(cut_short)
    return [
        Group(name, {}, tuple(_trajectory(name, each, steps, (name, each) in cut) for each, steps in group.items()))
        for name, group in case.items()
    ]


def _trajectory(group: str, name: str, steps: Steps, cut_short: bool) -> Trajectory:
    made = tuple(
        Step(
            index,
            Observation((), prompt_ids=token_array([1, 2]), anchor=f"state {index}"),
            Action(token_ids=token_array(range(n_tokens)), logprobs=float_array([-0.5] * n_tokens)),
            reward=reward,
            terminated=not cut_short and index == len(steps) - 1,
            truncated=cut_short and index == len(steps) - 1,
        )
        for index, (reward, n_tokens) in enumerate(steps)
    )
    return Trajectory(name, group, {}, made, StopReason.TRUNCATED if cut_short else StopReason.TERMINATED)


def batch_of(
    groups: Sequence[Group], *, values: bool, teacher: bool = False, after_limit: float | None = None
) -> CreditBatch:
    """The groups as an estimator sees them.

    Args:
        groups: In any order.
        values: Whether a critic's values come along.
        teacher: Whether the log-probs of the policy and of a teacher come along.
        after_limit: The value of what would have followed a truncated trajectory, instead of a made-up one.
    """
    batch = CreditBatch.from_groups(groups)
    extra: dict[str, Any] = _teacher(groups) if teacher else {}
    if values:
        extra |= _values(groups, after_limit)
    return replace(batch, **extra)


def _teacher(groups: Sequence[Group]) -> dict[str, Any]:
    """Log-probs of each token under the policy and under a teacher."""
    names = [
        (group.id, trajectory.id, step.index, position)
        for group in groups
        for trajectory in group.trajectories
        for step in trajectory.steps
        for position in range(len(step.action))
    ]
    return {
        "sampled_logprobs": np.full(len(names), -0.5),
        "teacher_logprobs": np.asarray([-0.75 + 0.5 * _value(*name) for name in names], dtype=np.float64),
    }


def _values(groups: Sequence[Group], after_limit: float | None) -> dict[str, Any]:
    """Values of each step, of what follows it, and of each token."""
    of_steps: list[float] = []
    after: list[float] = []
    of_tokens: list[float] = []
    for group in groups:
        for trajectory in group.trajectories:
            own = [_value(group.id, trajectory.id, step.index) for step in trajectory.steps]
            beyond = _value(group.id, trajectory.id, len(own)) if after_limit is None else after_limit
            of_steps += own
            after += [*own[1:], beyond if trajectory.stop_reason.is_truncation else 0.0]
            for step, value in zip(trajectory.steps, own, strict=True):
                of_tokens += [value + 0.05 * position for position in range(len(step.action))]
    arrays = {"step_values": of_steps, "next_values": after, "token_values": of_tokens}
    return {name: np.asarray(numbers, dtype=np.float64) for name, numbers in arrays.items()}


def _value(*names: object) -> float:
    """A made-up value between -1 and 1 that depends on the names alone."""
    return math.sin(sum((position + 1) * ord(letter) for position, letter in enumerate("/".join(map(str, names)))))
