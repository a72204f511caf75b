"""Trajectories made of real token ids for the row tests."""

from __future__ import annotations

import pytest

from agentr1_core.mdp import (
    Action,
    Group,
    Observation,
    Step,
    StopReason,
    Trajectory,
    VersionSpan,
    float_array,
    token_array,
)


def _step(index, prompt, action, reward=0.0, logprobs=None, versions=None, sampling=None):
    versions = [0] * len(action) if versions is None else versions
    return Step(
        index,
        Observation(messages=(), prompt_ids=token_array(prompt)),
        Action(
            token_ids=token_array(action),
            logprobs=float_array([-0.1 * (i + 1) for i in range(len(action))] if logprobs is None else logprobs),
            version_spans=tuple(VersionSpan(1, version) for version in versions),
            sampling=sampling or {"temperature": 1.0},
        ),
        reward=reward,
    )


def _trajectory(name, *steps, group_id="g", stop_reason=StopReason.TERMINATED):
    return Trajectory(name, group_id, {}, tuple(steps), stop_reason)


def _group(*trajectories, group_id="g", failed=()):
    return Group(group_id, {}, tuple(trajectories), tuple(failed))


@pytest.fixture(scope="session")
def make_step():
    """``make_step(index, prompt, action, reward=..., logprobs=..., versions=..., sampling=...)``"""
    return _step


@pytest.fixture(scope="session")
def make_trajectory():
    """``make_trajectory(name, *steps, group_id=..., stop_reason=...)``"""
    return _trajectory


@pytest.fixture(scope="session")
def make_group():
    """``make_group(*trajectories, group_id=..., failed=...)``"""
    return _group
