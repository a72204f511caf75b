"""Small groups for the credit tests: a step is given as ``(reward, n_tokens)``."""

from __future__ import annotations

import pytest

from agentr1_core.mdp import Action, Group, Observation, Step, StopReason, Trajectory, token_array


def _step(index, reward, n_tokens, **flags):
    action = Action(token_ids=token_array(range(n_tokens)), logprobs=[-0.5] * n_tokens)
    return Step(index, Observation(messages=(), prompt_ids=token_array([7, 8])), action, reward=reward, **flags)


def _trajectory(group_id, name, steps, stop_reason=StopReason.TERMINATED):
    made = tuple(
        _step(i, *spec, terminated=stop_reason is StopReason.TERMINATED and i == len(steps) - 1)
        for i, spec in enumerate(steps)
    )
    return Trajectory(name, group_id, {}, made, stop_reason)


def _group(group_id, trajectories, cut_short=()):
    made = tuple(
        _trajectory(group_id, name, steps, StopReason.MAX_STEPS if name in cut_short else StopReason.TERMINATED)
        for name, steps in trajectories.items()
    )
    return Group(group_id, {}, made)


@pytest.fixture(scope="session")
def make_step():
    """``make_step(index, reward, n_tokens, **flags)``"""
    return _step


@pytest.fixture(scope="session")
def make_group():
    """``make_group("g", {"A": [(reward, n_tokens), ...], ...}, cut_short={"A"})``"""
    return _group


@pytest.fixture(scope="session")
def worked_groups():
    """The worked example: A, B and C in group g with returns 1.1, 0.5 and 0, and D alone in group h with 2."""
    g = _group("g", {"A": [(0.1, 2), (0.0, 3), (1.0, 1)], "B": [(0.5, 1), (0.0, 2)], "C": [(0.0, 2)]})
    return [g, _group("h", {"D": [(2.0, 1)]})]
