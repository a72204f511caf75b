"""On-policy distillation as an advantage of each token, on its own and on top of rewards."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentr1_core.credit import GRPO, CreditBatch, Distill, StepGAE
from agentr1_core.errors import ConfigError

STUDENT = np.array([-0.5, -1.2, -0.05, -3.0])
TEACHER = np.array([-0.4, -2.2, -0.05, -1.0])


def judged(groups, sampled=STUDENT, teacher=TEACHER):
    return dataclasses.replace(CreditBatch.from_groups(groups), sampled_logprobs=sampled, teacher_logprobs=teacher)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-7)


def test_worked_example(make_group):
    batch = judged([make_group("g", {"A": [(1.0, 1), (0.0, 3)]})])
    close(Distill().estimate(batch).advantages, [0.1, -1, 0, 2])
    close(Distill({"beta": 0.5}).estimate(batch).advantages, [0.05, -0.5, 0, 1])
    close(Distill({"discount": 0.9}).estimate(batch).advantages, [0.658, 0.62, 1.8, 2])


@settings(deadline=None, max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lengths=st.lists(st.integers(0, 4), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_how_tokens_fall_into_steps_does_not_matter(make_group, lengths, seed):
    total = sum(lengths)
    rng = np.random.default_rng(seed)
    sampled, teacher = -rng.exponential(size=(2, total))
    several = judged([make_group("g", {"A": [(1.0, n) for n in lengths]})], sampled, teacher)
    one = judged([make_group("g", {"A": [(1.0, total)]})], sampled, teacher)
    told = {"discount": 0.7}
    np.testing.assert_array_equal(Distill(told).estimate(several).advantages, Distill(told).estimate(one).advantages)


def test_on_top_of_rewards(make_group):
    batch = judged([make_group("g", {"A": [(1.0, 2)], "B": [(0.0, 2)]})])
    found = Distill({"base": "grpo", "beta": 0.1}).estimate(batch)
    np.testing.assert_allclose(found.advantages, GRPO().estimate(batch).advantages + 0.1 * (TEACHER - STUDENT))
    assert found.counters["credit/groups"] == 1
    assert found.counters["credit/teacher_gap"] == pytest.approx(1.1 / 4)


def test_the_next_trajectory_is_never_reached(make_group):
    batch = judged([make_group("g", {"A": [(1.0, 2)], "B": [(0.0, 2)]})])
    close(Distill({"discount": 0.9}).estimate(batch).advantages, [0.1 - 0.9, -1, 1.8, 2])


def test_tokens_without_a_log_prob_add_nothing(make_group):
    group = make_group("g", {"A": [(1.0, 4)]})
    found = Distill({"discount": 1.0}).estimate(judged([group], sampled=np.array([-0.5, np.nan, -0.05, -3.0])))
    close(found.advantages, [2.1, 2, 2, 2])
    assert found.counters["credit/tokens_without_teacher"] == 1


def test_a_base_with_a_critic_keeps_its_returns(make_group):
    batch = judged([make_group("g", {"A": [(1.0, 1), (0.0, 3)]})])
    valued = dataclasses.replace(batch, step_values=np.array([0.5, 0.25]))
    estimator = Distill({"base": "step_gae", "base_settings": {"whiten": False}})
    assert estimator.needs_values
    assert not Distill().needs_values
    np.testing.assert_array_equal(
        estimator.estimate(valued).returns, StepGAE({"whiten": False}).estimate(valued).returns
    )


def test_what_is_missing_or_misspelt_is_told(make_group):
    with pytest.raises(ConfigError, match="teacher"):
        Distill().estimate(CreditBatch.from_groups([make_group("g", {"A": [(1.0, 4)]})]))
    with pytest.raises(ConfigError, match="'grop'"):
        Distill({"base": "grop"})
    with pytest.raises(ConfigError, match="no base"):
        Distill({"base_settings": {"eps": 1}})
