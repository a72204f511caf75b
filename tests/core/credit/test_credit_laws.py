"""Laws that hold for every batch."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentr1_core.credit import ESTIMATORS, CreditBatch

TRAJECTORY_LEVEL = ["grpo", "dr_grpo", "rloo", "reinforce_pp_baseline"]
ALL = [*TRAJECTORY_LEVEL, "reinforce", "reinforce_pp", "step_grpo", "gigpo"]

#: Rewards in eighths, so that a spread is either none or a real one.
REWARDS = st.integers(-8, 8).map(lambda n: n / 8)
STEPS = st.lists(st.tuples(st.none() | REWARDS, st.integers(0, 3)), min_size=1, max_size=4)
GROUPS = st.lists(st.lists(STEPS, min_size=1, max_size=5), min_size=1, max_size=3)

law = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def build(make_group, groups):
    return [
        make_group(f"g{g}", {f"t{i}": steps for i, steps in enumerate(trajectories)})
        for g, trajectories in enumerate(groups)
    ]


def advantages_by_trajectory(name, groups, **options):
    """Advantages of each trajectory's tokens, by (group id, trajectory id)."""
    batch = CreditBatch.from_groups(groups)
    found = ESTIMATORS[name](options).estimate(batch).advantages
    keys = [(group.id, trajectory.id) for group in groups for trajectory in group.trajectories]
    parts = batch.split(found, np.bincount(batch.trajectory).tolist())
    return dict(zip(keys, parts, strict=True))


def same(left, right, atol=1e-9):
    assert left.keys() == right.keys()
    for key in left:
        np.testing.assert_allclose(left[key], right[key], rtol=1e-9, atol=atol)


@pytest.mark.parametrize("name", ALL)
@law
@given(groups=GROUPS, data=st.data())
def test_the_order_of_trajectories_and_groups_does_not_matter(name, make_group, groups, data):
    made = build(make_group, groups)
    shuffled = [
        dataclasses.replace(group, trajectories=tuple(data.draw(st.permutations(group.trajectories))))
        for group in data.draw(st.permutations(made))
    ]
    same(advantages_by_trajectory(name, made), advantages_by_trajectory(name, shuffled))


@pytest.mark.parametrize("name", ALL)
@law
@given(groups=GROUPS, data=st.data())
def test_a_group_split_over_ranks_is_whole_again(name, make_group, groups, data):
    made = build(make_group, groups)
    ranks = [[], []]
    for group in made:
        cut = data.draw(st.integers(0, len(group.trajectories)))
        ranks[0].append(dataclasses.replace(group, trajectories=group.trajectories[:cut]))
        ranks[1].append(dataclasses.replace(group, trajectories=group.trajectories[cut:]))
    parts = [CreditBatch.from_groups(rank) for rank in ranks]
    joined = CreditBatch.concat(parts)
    credit = ESTIMATORS[name]().estimate(joined)
    by_rank = joined.split(credit.advantages, [part.n_steps for part in parts])

    together = advantages_by_trajectory(name, made)
    for rank, part, found in zip(ranks, parts, by_rank, strict=True):
        keys = [(group.id, trajectory.id) for group in rank for trajectory in group.trajectories]
        expected = np.concatenate([together[key] for key in keys] or [[]])
        assert len(found) == part.total_tokens
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", TRAJECTORY_LEVEL)
@law
@given(groups=GROUPS, data=st.data())
def test_moving_reward_between_steps_changes_nothing(name, make_group, groups, data):
    moved = []
    for trajectories in groups:
        moved.append([])
        for steps in trajectories:
            total = sum(reward or 0 for reward, _ in steps)
            unscored = all(reward is None for reward, _ in steps)
            at = data.draw(st.integers(0, len(steps) - 1))
            moved[-1].append([(total if i == at and not unscored else None, n) for i, (_, n) in enumerate(steps)])
    same(
        advantages_by_trajectory(name, build(make_group, groups)),
        advantages_by_trajectory(name, build(make_group, moved)),
    )


@pytest.mark.parametrize("name", ["grpo", "reinforce_pp_baseline"])
@law
@given(groups=GROUPS, a=st.sampled_from([0.5, 2.0, 10.0]), b=st.integers(-4, 4))
def test_scale_and_shift_of_returns_do_not_matter(name, make_group, groups, a, b):
    # One step each: a shift then adds the same to every return. At least two tokens, since one is never whitened.
    plain = [[[(steps[0][0], steps[0][1] + 1)] for steps in trajectories] for trajectories in groups]
    mapped = [[[(None if r is None else a * r + b, n)] for [(r, n)] in trajectories] for trajectories in plain]
    same(
        advantages_by_trajectory(name, build(make_group, plain)),
        advantages_by_trajectory(name, build(make_group, mapped)),
        atol=1e-4,
    )


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo"])
@law
@given(groups=GROUPS)
def test_advantages_of_a_group_sum_to_zero(name, make_group, groups):
    one_token = [[[(r, int(i == 0)) for i, (r, _) in enumerate(steps)] for steps in ts] for ts in groups]
    found = advantages_by_trajectory(name, build(make_group, one_token))
    for g in range(len(groups)):
        assert abs(sum(x[0] for (group, _), x in found.items() if group == f"g{g}")) < 1e-9


@law
@given(groups=GROUPS)
def test_rloo_compares_with_the_others(make_group, groups):
    made = build(make_group, groups)
    found = advantages_by_trajectory("rloo", made)
    for group in made:
        scored = [t for t in group.trajectories if t.is_scorable]
        for one in scored:
            others = [t.ret for t in scored if t is not one]
            expected = one.ret - sum(others) / len(others) if others else 0.0
            np.testing.assert_allclose(found[group.id, one.id], expected, atol=1e-9)


@pytest.mark.parametrize("name", ["reinforce_pp", "reinforce_pp_baseline"])
@law
@given(groups=GROUPS)
def test_whitened_tokens_have_mean_zero_and_variance_one(name, make_group, groups):
    made = build(make_group, groups)
    found = advantages_by_trajectory(name, made)
    counted = []
    for group in made:
        scored = [t for t in group.trajectories if t.is_scorable]
        if name == "reinforce_pp" or len({t.ret for t in scored}) > 1:
            counted += [a for t in scored for a in found[group.id, t.id]]
    if len(counted) > 1 and any(counted):
        assert abs(np.mean(counted)) < 1e-9
        assert abs(np.var(counted, ddof=1) - 1) < 1e-4


@pytest.mark.parametrize("name", ALL)
@law
@given(groups=GROUPS)
def test_advantages_are_finite_and_one_for_each_token(name, make_group, groups):
    batch = CreditBatch.from_groups(build(make_group, groups))
    credit = ESTIMATORS[name]().estimate(batch)
    assert credit.advantages.shape == (batch.total_tokens,)
    assert np.all(np.isfinite(credit.advantages))
    assert not credit.advantages[~batch.trajectories_to_tokens(batch.scorable)].any()


@law
@given(groups=GROUPS, gamma=st.sampled_from([0.0, 0.5, 0.9, 1.0]))
def test_returns_to_go_follow_their_recursion(make_group, groups, gamma):
    made = build(make_group, groups)
    found = iter(CreditBatch.from_groups(made).returns_to_go(gamma))
    for group in made:
        for trajectory in group.trajectories:
            rewards = [step.reward or 0.0 for step in trajectory.steps]
            for t in range(len(rewards)):
                expected = sum(gamma**k * r for k, r in enumerate(rewards[t:]))
                assert next(found) == pytest.approx(expected, abs=1e-12)
