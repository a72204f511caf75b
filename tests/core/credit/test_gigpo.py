"""GiGPO on the worked example, and how it tells states apart."""

import dataclasses

import numpy as np
import pytest

from agentr1_core.credit import GRPO, CreditBatch, GiGPO
from agentr1_core.mdp import Group, Observation, StopReason, Trajectory, token_array

ANCHORS = ("s0", "s1", "s2", "s0", "s1", "s0", "s0")


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-7)


@pytest.mark.parametrize(
    ("norm", "expected"),
    [
        ("std", [1.994343, 1.735991, 1.028885, 0.005304, -0.767628, -1.999647]),
        ("mean", [1.006667, 1.016667, 0.566667, -0.003333, -0.483333, -1.003333]),
    ],
)
def test_worked_example(worked_groups, norm, expected):
    # D in another group sees a state of the same name; it is not compared with those of group g.
    batch = dataclasses.replace(CreditBatch.from_groups(worked_groups), anchor=ANCHORS)
    credit = GiGPO({"gamma": 0.9, "norm": norm}).estimate(batch)
    close(credit.advantages[[0, 2, 5, 6, 7, 9]], expected)
    assert credit.advantages[-1] == 0
    assert credit.counters["credit/states"] == 3
    assert credit.counters["credit/states_seen_once"] == 1


def test_states_seen_once_leave_grpo(worked_groups):
    batch = CreditBatch.from_groups(worked_groups)
    alone = dataclasses.replace(batch, anchor=tuple("abcdefg"))
    np.testing.assert_allclose(GiGPO().estimate(alone).advantages, GRPO().estimate(batch).advantages, atol=1e-12)
    nameless = dataclasses.replace(batch, anchor=(None,) * 7)
    found = GiGPO().estimate(nameless)
    np.testing.assert_allclose(found.advantages, GRPO().estimate(batch).advantages, atol=1e-12)
    assert found.counters["credit/steps_without_anchor"] == 7


def test_left_out_trajectories_are_no_part_of_a_state(make_group):
    rest = {"A": [(1, 2), (0, 1)], "B": [(0, 1), (0.5, 1)]}
    without = GiGPO().estimate(CreditBatch.from_groups([make_group("g", rest)])).advantages
    for extra, told in (([(None, 1)], {}), ([(1, 1)], {"truncated": "mask"})):
        group = make_group("g", {**rest, "C": extra}, cut_short={"C"})
        found = GiGPO(told).estimate(CreditBatch.from_groups([group])).advantages
        np.testing.assert_array_equal(found, [*without, 0])


def test_states_are_named_by_the_environment_else_by_their_exact_tokens(make_step):
    def trajectory(name, observation, reward):
        step = dataclasses.replace(make_step(0, reward, 1, terminated=True), observation=observation)
        return Trajectory(name, "g", {}, (step,), StopReason.TERMINATED)

    def batch(*observations):
        made = tuple(trajectory(f"t{i}", o, float(i)) for i, o in enumerate(observations))
        return CreditBatch.from_groups([Group("g", {}, made)])

    same, other = token_array([1, 2, 3]), token_array([1, 2, 4])
    by_tokens = batch(*(Observation((), prompt_ids=ids) for ids in (same, same, other))).anchor
    assert by_tokens[0] == by_tokens[1] != by_tokens[2]
    named = batch(Observation((), prompt_ids=same, anchor="room"), Observation((), prompt_ids=other, anchor="room"))
    assert named.anchor == ("room", "room")
    assert batch(Observation(())).anchor == (None,)


def test_a_step_of_a_trajectory_is_told_from_its_others(make_group):
    # Both episodes succeed, so GRPO says nothing; from the shared state one got there sooner.
    group = make_group("g", {"A": [(0, 1), (1, 1)], "B": [(1, 1)]})
    batch = dataclasses.replace(CreditBatch.from_groups([group]), anchor=("s0", "s1", "s0"))
    close(GiGPO({"gamma": 0.5, "norm": "mean"}).estimate(batch).advantages, [-0.25, 0, 0.25])


def test_one_step_weight_scales_only_the_step_score(worked_groups):
    batch = dataclasses.replace(CreditBatch.from_groups(worked_groups), anchor=ANCHORS)
    zero, one, two = (GiGPO({"step_weight": w}).estimate(batch).advantages for w in (0, 1, 2))
    np.testing.assert_allclose(zero, GRPO().estimate(batch).advantages, atol=1e-12)
    np.testing.assert_allclose(two - one, one - zero, atol=1e-12)
