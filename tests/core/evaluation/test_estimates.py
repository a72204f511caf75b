"""Laws of the estimates, and worked numbers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentr1_core.evaluation import estimate_mean, estimate_rate, pass_all_k, pass_at_k, wilson_interval

#: Times mean nothing on a busy machine.
law = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])

counts = st.integers(1, 9).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
rates = st.floats(0, 1)
sizes = st.floats(0.5, 1e6)
solved = st.lists(st.lists(st.booleans(), min_size=1, max_size=5), min_size=1, max_size=30)


@law
@given(counts)
def test_pass_at_k_is_the_share_of_draws_without_replacement_that_hold_a_success(count):
    n, c = count
    attempts = [True] * c + [False] * (n - c)
    for k in range(1, n + 1):
        draws = list(itertools.combinations(attempts, k))
        assert pass_at_k(n, c, k) == pytest.approx(np.mean([any(draw) for draw in draws]))
        assert pass_all_k(n, c, k) == pytest.approx(np.mean([all(draw) for draw in draws]))


@law
@given(counts)
def test_pass_at_k_grows_with_k_from_the_success_rate_and_pass_all_k_falls(count):
    n, c = count
    some = [pass_at_k(n, c, k) for k in range(1, n + 1)]
    every = [pass_all_k(n, c, k) for k in range(1, n + 1)]

    assert some[0] == pytest.approx(c / n)
    assert every[0] == pytest.approx(c / n)
    assert some == sorted(some)
    assert every == sorted(every, reverse=True)
    assert some[-1] == float(c > 0)
    assert every[-1] == float(c == n)


def test_pass_at_k_is_unbiased():
    """The mean over all outcomes of 6 attempts, each solved with p, is the chance that one of k is solved."""
    n, p = 6, 0.3
    for k in range(1, n + 1):
        expected = sum(math.comb(n, c) * p**c * (1 - p) ** (n - c) * pass_at_k(n, c, k) for c in range(n + 1))
        assert expected == pytest.approx(1 - (1 - p) ** k)


def test_pass_at_k_stays_exact_for_many_attempts():
    assert pass_at_k(10_000, 1, 100) == pytest.approx(0.01)
    assert pass_at_k(200, 5, 10) == pytest.approx(1 - math.comb(195, 10) / math.comb(200, 10))


@pytest.mark.parametrize(("n", "c", "k"), [(3, 4, 1), (3, 1, 4), (3, 1, 0), (3, -1, 1)])
def test_pass_at_k_refuses_what_makes_no_sense(n, c, k):
    with pytest.raises(ValueError, match="no pass@"):
        pass_at_k(n, c, k)


@law
@given(rates, sizes)
def test_wilson_contains_the_rate_and_stays_a_probability(rate, n):
    low, high = wilson_interval(rate, n)

    assert 0 <= low <= rate <= high <= 1
    mirrored_low, mirrored_high = wilson_interval(1 - rate, n)
    assert (low, high) == pytest.approx((1 - mirrored_high, 1 - mirrored_low), abs=1e-9)


@law
@given(rates, sizes, st.floats(1.01, 10))
def test_wilson_narrows_with_more_attempts_and_widens_with_confidence(rate, n, factor):
    low, high = wilson_interval(rate, n)
    more_low, more_high = wilson_interval(rate, n * factor)
    sure_low, sure_high = wilson_interval(rate, n, 0.99)

    assert more_high - more_low <= high - low + 1e-12
    assert sure_high - sure_low >= high - low - 1e-12


def test_wilson_by_hand():
    """8 of 10 at z = 1.959964: centre (0.8 + 0.19207) / 1.38415, and so on."""
    assert wilson_interval(0.8, 10) == pytest.approx((0.49016, 0.94332), abs=1e-5)
    assert wilson_interval(0.0, 10) == pytest.approx((0.0, 0.27753), abs=1e-5)


@pytest.mark.parametrize("n", [10, 30, 100, 300])
def test_wilson_covers_as_often_as_it_says(n):
    """Exact coverage by binomial sums: close to 95 % on average, and nowhere in the middle far below."""
    found = [wilson_interval(k / n, n) for k in range(n + 1)]
    coverage = []
    for p in np.linspace(0.01, 0.99, 197):
        chances = [math.exp(_log_binomial(n, k, p)) for k in range(n + 1)]
        coverage.append(sum(chance for chance, (low, high) in zip(chances, found, strict=True) if low <= p <= high))
    middle = [each for p, each in zip(np.linspace(0.01, 0.99, 197), coverage, strict=True) if 0.1 <= p <= 0.9]

    assert np.mean(coverage) == pytest.approx(0.95, abs=0.01)
    assert min(coverage) > 0.83
    assert min(middle) > 0.91


def _log_binomial(n, k, p):
    return math.log(math.comb(n, k)) + k * math.log(p) + (n - k) * math.log1p(-p)


@law
@given(solved)
def test_the_interval_of_a_rate_is_between_those_of_all_attempts_and_of_tasks_alone(tasks):
    estimate = estimate_rate(tasks)
    n = sum(map(len, tasks))
    rate = sum(map(sum, tasks)) / n

    assert estimate.value == pytest.approx(rate)
    (least_low, least_high), (most_low, most_high) = wilson_interval(rate, n), wilson_interval(rate, len(tasks))
    assert most_low - 1e-9 <= estimate.low <= least_low + 1e-9
    assert least_high - 1e-9 <= estimate.high <= most_high + 1e-9


def test_one_attempt_a_task_is_wilsons_interval():
    tasks = [[True]] * 8 + [[False]] * 2

    estimate = estimate_rate(tasks)
    assert (estimate.low, estimate.high) == wilson_interval(0.8, 10)


def test_repeating_attempts_that_agree_adds_nothing():
    once = estimate_rate([[1]] * 6 + [[0]] * 4)
    often = estimate_rate([[1] * 16] * 6 + [[0] * 16] * 4)

    assert (often.low, often.high) == pytest.approx((once.low, once.high))


def test_independent_attempts_count_almost_like_tasks():
    rng = np.random.default_rng(0)
    tasks = rng.random((200, 8)) < 0.4

    estimate = estimate_rate(list(tasks))
    width = estimate.high - estimate.low
    low, high = wilson_interval(estimate.value, tasks.size)
    assert width == pytest.approx(high - low, rel=0.2)


@pytest.mark.parametrize("k", [1, 2, 4])
def test_intervals_cover_when_tasks_differ_in_difficulty(k):
    """Difficulties are Beta(2, 1): a task is solved with 2/3 on average, and missed k times with 2/((k+1)(k+2))."""
    rng = np.random.default_rng(2)
    held = {"success": 0, "pass": 0}
    for _ in range(400):
        solved = rng.random((60, 4)) < rng.beta(2, 1, (60, 1))
        success = estimate_rate(list(solved))
        chance = estimate_rate([[pass_at_k(4, int(task.sum()), k)] for task in solved], attempts=solved.size)
        held["success"] += success.low <= 2 / 3 <= success.high
        held["pass"] += chance.low <= 1 - 2 / ((k + 1) * (k + 2)) <= chance.high
    assert min(held.values()) >= 358  # five standard deviations below 380


def test_the_clustered_standard_error_by_hand():
    """Two tasks with attempts 1, 3 and 5: the mean is 3, residual sums are -2 and +2 ... over 3 attempts."""
    estimate = estimate_mean([[1.0, 3.0], [5.0]])

    assert estimate.value == 3.0
    assert estimate.se == pytest.approx(math.sqrt(2 / 1 * (2**2 + 2**2)) / 3)


@law
@given(st.lists(st.lists(st.floats(-100, 100), min_size=1, max_size=4), min_size=2, max_size=12))
def test_with_one_value_a_task_the_standard_error_is_the_ordinary_one(tasks):
    values = [task[0] for task in tasks]

    estimate = estimate_mean([[value] for value in values], draws=50)
    assert estimate.se == pytest.approx(np.std(values, ddof=1) / math.sqrt(len(values)), abs=1e-9)
    assert estimate.low <= estimate.value <= estimate.high
    assert min(values) - 1e-9 <= estimate.low
    assert estimate.high <= max(values) + 1e-9


def test_the_bootstrap_covers_and_repeats_itself():
    """Of 200 evaluations of 60 tasks with 3 attempts each, the interval holds the true mean about 19 times of 20."""
    rng = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        levels = rng.normal(2.0, 1.0, (60, 1))
        tasks = levels + rng.normal(0.0, 0.5, (60, 3))
        estimate = estimate_mean(list(tasks), draws=400)
        held += estimate.low <= 2.0 <= estimate.high
        assert estimate_mean(list(tasks), draws=400) == estimate
    assert 176 <= held <= 200  # five standard deviations below 190


def test_a_single_task_has_no_spread():
    assert estimate_mean([[1.0, 2.0]]).se is None
    assert estimate_rate([[True, False]]).se is None


def test_nothing_can_be_estimated_from_nothing():
    for tasks in ([], [[]], [[1.0], []]):
        with pytest.raises(ValueError, match="at least one"):
            estimate_mean(tasks)
