"""Trajectories written by hand; nothing here needs OpenRLHF."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from agentr1_core.mdp import Action, Group, Observation, Step, StopReason, Trajectory, float_array, token_array


def _trajectory(
    name: str,
    steps: Sequence[tuple[Sequence[int], Sequence[int], float | None]],
    *,
    group: str = "g",
    stop: StopReason = StopReason.TERMINATED,
    after: Sequence[int] | None = None,
) -> Trajectory:
    """Steps as prompt ids, action ids and reward; log-probs are -1, -2, ... within each action."""
    made = []
    for index, (prompt, action, reward) in enumerate(steps):
        last = index == len(steps) - 1
        following = None if after is None or not last else Observation((), prompt_ids=token_array(after))
        logprobs = float_array([-1.0 - place for place in range(len(action))])
        made.append(
            Step(
                index,
                Observation((), prompt_ids=token_array(prompt)),
                Action(token_array(action), logprobs, sampling={"temperature": 1.0}),
                reward=reward,
                terminated=last and not stop.is_truncation,
                truncated=last and stop.is_truncation,
                next_observation=following,
                continued=index > 0 and list(prompt[: len(steps[index - 1][0])]) == list(steps[index - 1][0]),
            )
        )
    return Trajectory(f"{group}/{name}", group, {}, tuple(made), stop)


@pytest.fixture
def growing() -> Trajectory:
    """Two steps, the second of which sees all of the first."""
    return _trajectory("0", [([1, 2], [5, 6], 0.25), ([1, 2, 5, 6, 3], [7], 0.5)])


@pytest.fixture
def rewritten() -> Trajectory:
    """Two steps, the second of which sees something else."""
    return _trajectory("1", [([1, 2], [5, 6], 0.0), ([9, 9], [7, 8, 7], 1.0)])


@pytest.fixture
def group(growing: Trajectory, rewritten: Trajectory) -> Group:
    return Group("g", {}, (growing, rewritten))


def _random_groups(seed: int, n_groups: int = 2, size: int = 3) -> tuple[Group, ...]:
    """Groups of episodes with one to four steps; some contexts grow and some are rewritten."""
    draw = np.random.default_rng(seed)
    groups = []
    for number in range(n_groups):
        members = []
        for member in range(size):
            steps, seen = [], draw.integers(1, 9, 3).tolist()
            for _ in range(int(draw.integers(1, 5))):
                action = draw.integers(1, 9, int(draw.integers(1, 4))).tolist()
                steps.append((seen, action, float(draw.normal())))
                seen = draw.integers(1, 9, 2).tolist() if draw.random() < 0.5 else [*seen, *action, 1]
            members.append(_trajectory(str(member), steps, group=str(number)))
        groups.append(Group(str(number), {}, tuple(members)))
    return tuple(groups)


@pytest.fixture(scope="session")
def make_trajectory() -> Callable[..., Trajectory]:
    """``make_trajectory(name, [(prompt ids, action ids, reward), ...], group=, stop=, after=)``."""
    return _trajectory


@pytest.fixture(scope="session")
def random_groups() -> Callable[..., tuple[Group, ...]]:
    """``random_groups(seed)``."""
    return _random_groups
