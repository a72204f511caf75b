"""Every estimator on one worked example, to six digits."""

import numpy as np
import pytest

from agentr1_core.credit import (
    ESTIMATORS,
    GRPO,
    RLOO,
    CreditBatch,
    DrGRPO,
    Reinforce,
    ReinforcePP,
    ReinforcePPBaseline,
    StepGRPO,
)
from agentr1_core.credit.whiten import whiten

#: Tokens of the trajectories A, B, C, D.
LENGTHS = [6, 3, 2, 1]


def per_token(*per_trajectory):
    return np.repeat(per_trajectory, LENGTHS)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=0, atol=5e-7)


@pytest.mark.parametrize(
    ("estimator", "expected"),
    [
        (GRPO(), (1.028885, -0.060523, -0.968362, 0)),
        (DrGRPO(), (0.566667, -0.033333, -0.533333, 0)),
        (RLOO(), (0.85, -0.05, -0.8, 0)),
    ],
)
def test_one_score_for_each_trajectory(worked_groups, estimator, expected):
    credit = estimator.estimate(CreditBatch.from_groups(worked_groups))
    close(credit.advantages, per_token(*expected))
    assert credit.counters["credit/groups_of_one"] == 1


def test_grpo_is_not_grpo_over_step_rows(worked_groups, make_group):
    # The fault this guards against: each step row counts as a trajectory of its own in mean and spread.
    rows = {f"row {i}": [(reward, 1)] for i, reward in enumerate([0.1, 0, 1, 0.5, 0, 0])}
    wrong = GRPO().estimate(CreditBatch.from_groups([make_group("g", rows)])).advantages
    close(wrong, [-0.408247, -0.653196, 1.796288, 0.571546, -0.653196, -0.653196])
    right = GRPO().estimate(CreditBatch.from_groups(worked_groups)).advantages
    first_tokens = right[[0, 2, 5, 6, 7, 9]]
    assert np.all(np.abs(first_tokens - wrong) > 0.1)


def test_whitening_over_tokens():
    # The published REINFORCE++-baseline keeps the raw return 2.0 of the lone D in the whitening.
    raw = per_token(1.7 / 3, -0.1 / 3, -1.6 / 3, 2.0)
    whitened = whiten(raw, np.ones(12, dtype=bool)).values
    close(whitened, per_token(0.317075, -0.572383, -1.313598, 2.441892))


def test_reinforce_pp_baseline(worked_groups):
    # D has nobody to be compared with: it gets zero and stays out of the whitening of the other eleven tokens.
    # Raw: 6 x 17/30, 3 x -1/30, 2 x -16/30; mean 67/330, variance (2249/900 - 11 * mean^2) / 10 = .204545.
    credit = ReinforcePPBaseline().estimate(CreditBatch.from_groups(worked_groups))
    close(credit.advantages, per_token(0.804030, -0.522620, -1.628161, 0))


def test_reinforce_pp_discounts_over_the_whole_trajectory(worked_groups):
    # Returns-to-go at gamma .9: A .91, .9, 1; B .5, 0; C 0; D 2. The last reward of A reaches its first step.
    batch = CreditBatch.from_groups(worked_groups)
    close(batch.returns_to_go(0.9), [0.91, 0.9, 1, 0.5, 0, 0, 2])
    x = np.array([0.91] * 2 + [0.9] * 3 + [1] + [0.5] + [0] * 2 + [0] * 2 + [2])
    mean = 8.02 / 12
    spread = np.sqrt((2 * 0.8281 + 3 * 0.81 + 1 + 0.25 + 4 - 12 * mean**2) / 11)
    close(ReinforcePP({"gamma": 0.9}).estimate(batch).advantages, (x - mean) / spread)


def test_reinforce_is_the_discounted_return_to_go(worked_groups):
    batch = CreditBatch.from_groups(worked_groups)
    found = Reinforce({"gamma": 0.9}).estimate(batch).advantages
    close(found, np.repeat([0.91, 0.9, 1, 0.5, 0, 0, 2], [2, 3, 1, 1, 2, 2, 1]))
    close(Reinforce().estimate(batch).advantages[:6], [1.1, 1.1, 1, 1, 1, 1])


def test_step_grpo_tells_steps_apart(worked_groups):
    # gamma 1: A 1.1, 1, 1; B .5, 0; C 0. Each trajectory weighs one: mean (3.1/3 + .25 + 0) / 3.
    credit = StepGRPO({"gamma": 1.0, "eps": 0.0}).estimate(CreditBatch.from_groups(worked_groups))
    mean = (3.1 / 3 + 0.25) / 3
    a = ((1.1 - mean) ** 2 + 2 * (1 - mean) ** 2) / 3
    b = ((0.5 - mean) ** 2 + mean**2) / 2
    spread = np.sqrt((a + b + mean**2) / 2)
    steps = (np.array([1.1, 1, 1, 0.5, 0, 0]) - mean) / spread
    close(credit.advantages, np.append(np.repeat(steps, [2, 3, 1, 1, 2, 2]), 0))


def test_step_grpo_is_grpo_when_only_the_end_is_rewarded(make_group):
    group = make_group("g", {"A": [(0, 2), (None, 1), (1, 3)], "B": [(0.25, 2)], "C": [(None, 1), (0, 4)]})
    batch = CreditBatch.from_groups([group])
    close(StepGRPO({"gamma": 1, "eps": 1e-6}).estimate(batch).advantages, GRPO().estimate(batch).advantages)


def test_step_grpo_favours_late_steps(make_group):
    # Its documented bias: two trajectories that do equally well still get credit, by depth alone.
    group = make_group("g", {"A": [(0, 1), (1, 1)], "B": [(0, 1), (1, 1)]})
    batch = CreditBatch.from_groups([group])
    close(StepGRPO({"gamma": 0.5, "eps": 0.0}).estimate(batch).advantages, np.array([-1, 1, -1, 1]) * np.sqrt(0.5))
    close(StepGRPO({"gamma": 1.0}).estimate(batch).advantages, [0, 0, 0, 0])


def test_names():
    critic_free = {
        "grpo",
        "dr_grpo",
        "rloo",
        "reinforce",
        "reinforce_pp",
        "reinforce_pp_baseline",
        "step_grpo",
        "gigpo",
    }
    assert set(ESTIMATORS) == {*critic_free, "step_gae", "token_gae", "distill"}
    assert all(ESTIMATORS[name].name == name for name in ESTIMATORS)
