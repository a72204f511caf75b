"""Step and token GAE on the worked example, where episodes end, and the laws of the recursion."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentr1_core.credit import CreditBatch, StepGAE, TokenGAE
from agentr1_core.errors import ConfigError

STEP_VALUES = [0.4, 0.6, 0.8, 0.3, 0.2, 0.5, 0.9]
WORKED = {"gamma": 0.9, "lam": 0.8}
RAW_STEPS = [0.43008, 0.264, 0.2, 0.536 - 0.3, -0.2, -0.5, 1.1]


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-7)


def with_values(groups, step_values=STEP_VALUES, next_values=None):
    """The batch with the worked values; the value before token j of a step is ``V + .05 j``."""
    batch = CreditBatch.from_groups(groups)
    steps = np.asarray(step_values, dtype=float)
    tokens = [value + 0.05 * np.arange(n) for value, n in zip(steps, batch.n_tokens, strict=True)]
    after = None if next_values is None else np.asarray(next_values, dtype=float)
    return dataclasses.replace(batch, step_values=steps, token_values=np.concatenate([*tokens, []]), next_values=after)


def by_step(batch, per_token):
    starts = np.cumsum([0, *batch.n_tokens[:-1]])
    return per_token[starts]


def test_step_gae_on_the_worked_example(worked_groups):
    batch = with_values(worked_groups)
    raw = StepGAE({**WORKED, "whiten": False}).estimate(batch)
    close(by_step(batch, raw.advantages), RAW_STEPS)
    close(by_step(batch, raw.returns), [0.83008, 0.864, 1, 0.536, 0, 0, 2])
    whitened = StepGAE(WORKED).estimate(batch)
    close(
        by_step(batch, whitened.advantages),
        [0.420768, 0.090356, -0.036970, 0.034651, -0.832761, -1.429603, 1.753558],
    )
    close(whitened.returns, raw.returns)


def test_token_gae_on_the_worked_example(worked_groups):
    batch = with_values(worked_groups)
    raw = TokenGAE({**WORKED, "whiten": False}).estimate(batch)
    expected = [0.170632, 0.230045, 0.055618, 0.09808, 0.164, 0.2, 0.2684, -0.155, -0.25, -0.401, -0.55, 1.1]
    close(raw.advantages, expected)
    close(raw.returns, np.array(expected) + batch.token_values)


def worked_with_b_cut(make_group):
    g = {"A": [(0.1, 2), (0.0, 3), (1.0, 1)], "B": [(0.5, 1), (0.0, 2)], "C": [(0.0, 2)]}
    return [make_group("g", g, cut_short={"B"}), make_group("h", {"D": [(2.0, 1)]})]


@pytest.mark.parametrize("estimator", [StepGAE, TokenGAE])
def test_an_episode_that_was_cut_goes_on_at_the_value_of_the_next_observation(estimator, make_group):
    cut = worked_with_b_cut(make_group)
    plain = {**WORKED, "whiten": False}
    unknown = [np.nan] * 7
    found = estimator(plain).estimate(with_values(cut, next_values=[*[np.nan] * 4, 0.25, np.nan, np.nan]))
    if estimator is StepGAE:
        close(found.advantages[[6, 7]], [0.398, 0.025])
    assert found.counters["credit/bootstrap_unknown"] == 0

    # Without a value it ends at zero, and says so; a real end is never bootstrapped.
    blind = estimator(plain).estimate(with_values(cut, next_values=unknown))
    assert blind.counters["credit/bootstrap_unknown"] == 1
    as_return = estimator({**plain, "truncated": "return"}).estimate(with_values(cut, next_values=[0.25] * 7))
    at_zero = estimator(plain).estimate(with_values(cut, next_values=[0.0] * 7))
    for other in (as_return, at_zero):
        np.testing.assert_array_equal(other.advantages, blind.advantages)
        assert other.counters["credit/bootstrap_unknown"] == 0


@pytest.mark.parametrize("estimator", [StepGAE, TokenGAE])
def test_cut_episodes_can_be_left_out(estimator, make_group):
    cut = with_values(worked_with_b_cut(make_group))
    credit = estimator({**WORKED, "truncated": "mask"}).estimate(cut)
    assert credit.masked.tolist() == [False] * 6 + [True] * 3 + [False] * 3
    assert credit.advantages[6:9].tolist() == [0, 0, 0]
    chosen = credit.advantages[~credit.masked] if estimator is TokenGAE else credit.advantages[[0, 2, 5, 9, 11]]
    assert chosen.mean() == pytest.approx(0, abs=1e-12)
    assert chosen.std(ddof=1) == pytest.approx(1, abs=1e-6)


def test_steps_without_an_action_are_no_part_of_the_whitening(make_group):
    trajectories = {"A": [(1.0, 2), (0.0, 0)], "B": [(0.0, 1)]}
    batch = with_values([make_group("g", trajectories)], [0.5, 100.0, 0.25])
    found = StepGAE({"lam": 0.0, "gamma": 0.0}).estimate(batch)
    close(found.advantages, np.array([1, 1, -1]) * np.sqrt(0.5))


def test_the_reward_of_a_step_without_tokens_falls_on_the_token_before(make_group):
    batch = with_values([make_group("g", {"A": [(0.0, 2), (1.0, 0)], "B": [(3.0, 0), (0.0, 1)]})], [0, 0, 0, 0])
    found = TokenGAE({"lam": 1.0, "whiten": False}).estimate(with_values_zero(batch))
    close(found.advantages, [1, 1, 0])


def with_values_zero(batch):
    return dataclasses.replace(batch, token_values=np.zeros(batch.total_tokens))


def test_discount_by_step_alone(make_group):
    batch = with_values_zero(CreditBatch.from_groups([make_group("g", {"A": [(0, 3), (0, 2), (1.0, 4)]})]))
    found = TokenGAE({"gamma": 1.0, "step_gamma": 0.9, "lam": 1.0, "whiten": False}).estimate(batch)
    close(found.advantages, [0.81] * 3 + [0.9] * 2 + [1.0] * 4)


def test_values_are_asked_for_by_name(worked_groups):
    batch = CreditBatch.from_groups(worked_groups)
    with pytest.raises(ConfigError, match=r"'step_gae'.*step_values"):
        StepGAE().estimate(batch)
    with pytest.raises(ConfigError, match=r"'token_gae'.*token_values"):
        TokenGAE().estimate(batch)


REWARDS = st.none() | st.integers(-8, 8).map(lambda n: n / 8)
STEPS = st.lists(st.tuples(REWARDS, st.integers(1, 3)), min_size=1, max_size=4)
GROUPS = st.lists(STEPS, min_size=1, max_size=4)
law = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def drawn_batch(make_group, groups, seed):
    rng = np.random.default_rng(seed)
    names = {f"t{i}": steps for i, steps in enumerate(groups)}
    made = make_group("g", names, cut_short={name for name in names if rng.random() < 0.5})
    batch = CreditBatch.from_groups([made])
    n = batch.n_steps
    return dataclasses.replace(
        batch,
        step_values=rng.normal(size=n),
        next_values=rng.normal(size=n),
        token_values=rng.normal(size=batch.total_tokens),
    )


@law
@given(groups=GROUPS, seed=st.integers(0, 99), gamma=st.sampled_from([0.0, 0.9, 1.0]))
def test_lambda_one_is_return_plus_bootstrap_minus_value_and_lambda_zero_is_td(make_group, groups, seed, gamma):
    batch = drawn_batch(make_group, groups, seed)
    included = batch.scorable[batch.trajectory]
    ended = batch.last
    boot = np.where(ended & batch.truncated, batch.next_values, 0.0)
    one = StepGAE({"gamma": gamma, "lam": 1.0, "whiten": False}).estimate(batch)
    to_go = np.zeros(batch.n_steps)
    for i in range(batch.n_steps - 1, -1, -1):
        to_go[i] = batch.rewards[i] + gamma * (boot[i] if ended[i] else to_go[i + 1])
    np.testing.assert_allclose(by_step(batch, one.advantages), np.where(included, to_go - batch.step_values, 0))

    following = np.where(ended, boot, np.append(batch.step_values[1:], 0.0))
    td = batch.rewards + gamma * following - batch.step_values
    zero = StepGAE({"gamma": gamma, "lam": 0.0, "whiten": False}).estimate(batch)
    np.testing.assert_allclose(by_step(batch, zero.advantages), np.where(included, td, 0))


@law
@given(groups=GROUPS, seed=st.integers(0, 99))
def test_with_one_token_a_step_both_are_the_same(make_group, groups, seed):
    single = [[(reward, 1) for reward, _ in steps] for steps in groups]
    batch = drawn_batch(make_group, single, seed)
    batch = dataclasses.replace(batch, token_values=batch.step_values)
    told = {"gamma": 0.9, "lam": 0.7}
    step, token = StepGAE(told).estimate(batch), TokenGAE(told).estimate(batch)
    np.testing.assert_allclose(step.advantages, token.advantages, atol=1e-9)
    np.testing.assert_allclose(step.returns, token.returns, atol=1e-9)


@pytest.mark.parametrize("estimator", [StepGAE, TokenGAE])
@law
@given(groups=GROUPS, more=GROUPS, seed=st.integers(0, 99))
def test_ranks_joined_are_one_batch(estimator, make_group, groups, more, seed):
    parts = [drawn_batch(make_group, groups, seed), drawn_batch(make_group, more, seed + 1)]
    joined = CreditBatch.concat(parts)
    unwhitened = {"whiten": False}
    by_rank = joined.split(estimator(unwhitened).estimate(joined).advantages, [part.n_steps for part in parts])
    for part, found in zip(parts, by_rank, strict=True):
        np.testing.assert_allclose(found, estimator(unwhitened).estimate(part).advantages, atol=1e-12)
