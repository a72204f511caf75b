"""What estimators say where there is little or nothing to say."""

import dataclasses
import math

import numpy as np
import pytest

from agentr1_core.credit import ESTIMATORS, CreditBatch
from agentr1_core.credit.whiten import whiten
from agentr1_core.errors import ConfigError, EnvError, RewardError
from agentr1_core.mdp import Group, StopReason, Trajectory

GROUP_RELATIVE = ["grpo", "dr_grpo", "rloo", "reinforce_pp_baseline", "step_grpo", "gigpo"]
WITHOUT_GROUPS = ["reinforce", "reinforce_pp"]
CRITIC_FREE = [*GROUP_RELATIVE, *WITHOUT_GROUPS]


def estimate(name, *groups, **settings):
    return ESTIMATORS[name](settings).estimate(CreditBatch.from_groups(groups))


@pytest.mark.parametrize("name", GROUP_RELATIVE)
def test_a_group_of_one_has_no_advantage_and_is_counted(name, make_group):
    credit = estimate(name, make_group("g", {"A": [(0.3, 2), (5.0, 3)]}))
    assert credit.advantages.tolist() == [0] * 5
    assert credit.counters["credit/groups_of_one"] == 1
    assert credit.counters["credit/zero_variance_groups"] == 0


@pytest.mark.parametrize("name", [*GROUP_RELATIVE, "reinforce_pp"])
@pytest.mark.parametrize("reward", [1000.1, 0.1, 0.0, -1e9 / 3])
def test_equal_returns_give_exactly_zero(name, reward, make_group):
    credit = estimate(name, make_group("g", {str(i): [(reward, 2)] for i in range(8)}))
    assert credit.advantages.tolist() == [0] * 16
    if name in GROUP_RELATIVE:
        assert credit.counters["credit/zero_variance_groups"] == 1


def test_returns_that_differ_by_rounding_are_equal(make_group):
    # .1 + .2 is not .3 in floating point.
    group = make_group("g", {"A": [(0.1, 1), (0.2, 1)], "B": [(0.3, 2)]})
    assert group.trajectories[0].ret != group.trajectories[1].ret
    for name in ("grpo", "dr_grpo", "rloo", "reinforce_pp_baseline"):
        assert not estimate(name, group).advantages.any()


def test_a_small_spread_around_a_large_mean_survives(make_group):
    # sum(x^2) - n * mean^2 in single precision would give a spread of .001 here.
    rewards = [1000.0, 1000.1, 1000.2, 1000.3]
    credit = estimate("grpo", make_group("g", {str(r): [(r, 1)] for r in rewards}))
    np.testing.assert_allclose(credit.advantages, (np.array(rewards) - 1000.15) / 0.1290994, atol=1e-4)


@pytest.mark.parametrize("name", GROUP_RELATIVE)
def test_groups_without_spread_do_not_disturb_others(name, make_group):
    telling = make_group("g", {"A": [(1, 2)], "B": [(0, 3)]})
    alone = estimate(name, telling)
    both = estimate(name, telling, make_group("h", {"C": [(1, 4)], "D": [(1, 1)]}))
    np.testing.assert_array_equal(both.advantages, [*alone.advantages, 0, 0, 0, 0, 0])


def test_a_missing_reward_counts_as_zero_where_another_exists(make_group):
    some = estimate("grpo", make_group("g", {"A": [(None, 2), (1, 1)], "B": [(0, 1), (None, 1)]}))
    full = estimate("grpo", make_group("g", {"A": [(0, 2), (1, 1)], "B": [(0, 1), (0, 1)]}))
    np.testing.assert_array_equal(some.advantages, full.advantages)
    assert some.counters["credit/unscorable"] == 0


@pytest.mark.parametrize("name", CRITIC_FREE)
def test_a_trajectory_without_any_reward_is_no_part_of_the_baseline(name, make_group):
    rest = {"A": [(1, 2)], "B": [(0, 1)]}
    without = estimate(name, make_group("g", rest))
    with_it = estimate(name, make_group("g", {**rest, "C": [(None, 2), (None, 1)]}))
    np.testing.assert_array_equal(with_it.advantages, [*without.advantages, 0, 0, 0])
    assert with_it.counters["credit/unscorable"] == 1


def test_a_group_that_shrinks_to_one_scorable_trajectory_is_a_group_of_one(make_group):
    credit = estimate("grpo", make_group("g", {"A": [(1, 2)], "B": [(None, 2)]}))
    assert not credit.advantages.any()
    assert credit.counters["credit/groups_of_one"] == 1


@pytest.mark.parametrize("name", CRITIC_FREE)
def test_truncated_trajectories_are_returns_or_left_out(name, make_group):
    trajectories = {"A": [(1, 2)], "B": [(0, 1)], "C": [(0.25, 1), (0.5, 2)]}
    finished = estimate(name, make_group("g", trajectories))
    as_return = estimate(name, make_group("g", trajectories, cut_short={"C"}), truncated="return")
    np.testing.assert_array_equal(as_return.advantages, finished.advantages)
    assert as_return.masked is None

    left_out = estimate(name, make_group("g", trajectories, cut_short={"C"}), truncated="mask")
    without = estimate(name, make_group("g", {"A": [(1, 2)], "B": [(0, 1)]}))
    np.testing.assert_array_equal(left_out.advantages, [*without.advantages, 0, 0, 0])
    assert left_out.masked.tolist() == [False] * 3 + [True] * 3
    assert left_out.counters["credit/truncated_masked"] == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_reward_that_is_not_finite_names_trajectory_and_step(bad, make_group):
    with pytest.raises(RewardError, match=r"'B'.*step 1"):
        CreditBatch.from_groups([make_group("g", {"A": [(1, 1)], "B": [(0, 1), (bad, 1)]})])


def test_a_reward_that_is_no_number(make_group):
    with pytest.raises(RewardError, match="no number"):
        CreditBatch.from_groups([make_group("g", {"A": [("high", 1)]})])


@pytest.mark.parametrize("indices", [[0, 2], [0, 0], [1, 2]])
def test_step_indices_must_be_contiguous_and_unique(indices, make_step):
    steps = tuple(make_step(i, 0.5, 1) for i in indices)
    with pytest.raises(EnvError, match="'A'"):
        CreditBatch.from_groups([Group("g", {}, (Trajectory("A", "g", {}, steps, StopReason.COMPLETED),))])


def test_steps_are_read_by_index_in_whatever_order_they_are_stored(make_group):
    (trajectory,) = make_group("g", {"A": [(0.5, 1), (0.25, 2), (1, 3)]}).trajectories
    stored = dataclasses.replace(trajectory, steps=trajectory.steps[::-1])
    batch = CreditBatch.from_groups([Group("g", {}, (stored,))])
    assert batch.reward.tolist() == [0.5, 0.25, 1]
    assert batch.n_tokens.tolist() == [1, 2, 3]


def test_a_trajectory_needs_steps_and_an_id_of_its_own(make_group):
    with pytest.raises(EnvError, match="no steps"):
        CreditBatch.from_groups([make_group("g", {"A": []})])
    with pytest.raises(EnvError, match="twice"):
        CreditBatch.from_groups([make_group("g", {"A": [(1, 1)]})] * 2)


def test_nothing_at_all_and_steps_without_tokens(make_group):
    for name in CRITIC_FREE:
        assert estimate(name).advantages.shape == (0,)
        assert estimate(name, make_group("g", {"A": [(1, 0)], "B": [(0, 0)]})).advantages.shape == (0,)


def test_whitening_one_number_is_skipped():
    result = whiten(np.array([3.0, np.nan]), np.array([True, False]))
    assert result.skipped
    assert result.values.tolist() == [3.0, 0.0]


def test_failed_trajectories_are_left_out(make_group):
    group = make_group("g", {"A": [(1, 1)], "B": [(0, 1)]})
    failed = dataclasses.replace(group.trajectories[0], id="F", stop_reason=StopReason.ENV_ERROR)
    batch = CreditBatch.from_groups([dataclasses.replace(group, failed=(failed,))])
    assert batch.n_trajectories == 2


def test_settings_are_checked():
    with pytest.raises(ConfigError, match=r"'grpo'.*'epsilon'"):
        ESTIMATORS["grpo"]({"epsilon": 1})
    with pytest.raises(ConfigError, match=r"'reinforce_pp'.*'gamma'"):
        ESTIMATORS["reinforce_pp"]({"gamma": 1.5})
    with pytest.raises(ConfigError, match="truncated"):
        ESTIMATORS["rloo"]({"truncated": "drop"})
