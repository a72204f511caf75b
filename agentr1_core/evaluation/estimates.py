"""Estimates and intervals of an evaluation: pass@k, Wilson's interval, means over tasks that were tried several times.

Pure functions of numbers. Tasks are drawn independently; attempts at one task are not, so every interval counts tasks
and never attempts alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike, NDArray

CONFIDENCE = 0.95
#: Draws of a bootstrap, and most tasks drawn in one block of it (memory: draws x block x 8 bytes).
DRAWS = 5_000
_BLOCK = 2_000_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and the interval around it at the confidence that was asked for."""

    value: float
    low: float
    high: float
    #: Standard error; ``None`` where there is a single task.
    se: float | None = None


def pass_at_k(attempts: int, solved: int, k: int) -> float:
    """Probability that at least one of k attempts at a task solves it, without bias.

    ``1 - C(attempts - solved, k) / C(attempts, k)``: Chen et al. 2021, "Evaluating Large Language Models Trained on
    Code", equation 1. It is exact in rational arithmetic up to the last division.

    Raises:
        ValueError: Not ``1 <= k <= attempts``, or not ``0 <= solved <= attempts``.
    """
    _check(attempts, solved, k)
    return 1.0 - math.comb(attempts - solved, k) / math.comb(attempts, k)


def pass_all_k(attempts: int, solved: int, k: int) -> float:
    """Probability that all of k attempts at a task solve it, without bias: ``C(solved, k) / C(attempts, k)``.

    Yao et al. 2024, "tau-bench", section 4 (there pass^k).

    Raises:
        ValueError: As for ``pass_at_k``.
    """
    _check(attempts, solved, k)
    return math.comb(solved, k) / math.comb(attempts, k)


def wilson_interval(rate: float, n: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Where a proportion lies that was observed as ``rate`` among ``n``; contains ``rate`` and stays in [0, 1].

    Wilson 1927, "Probable inference, the law of succession, and statistical inference". ``n`` need not be whole: of
    dependent attempts it is the number of independent ones that would tell as much.

    Raises:
        ValueError: The rate or the confidence is no probability, or n is not positive.
    """
    if not (0 <= rate <= 1 and 0 < confidence < 1 and n > 0):
        raise ValueError(f"No interval for a rate of {rate} among {n} at a confidence of {confidence}.")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    centre = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return min(rate, max(0.0, centre - half)), max(rate, min(1.0, centre + half))


def estimate_rate(
    tasks: Sequence[ArrayLike], confidence: float = CONFIDENCE, *, attempts: int | None = None
) -> Estimate:
    """The mean of values in [0, 1], such as solved or not, and Wilson's interval around it.

    With one attempt a task this is the ordinary interval. Several attempts at a task tell less than as many tasks
    would: n is then their number divided by the design effect (clustered over binomial variance), but not less than the
    number of tasks (Franco et al. 2019, "Comparative Study of Confidence Intervals for Proportions in Complex Sample
    Surveys").

    Args:
        tasks: The values of each task, at least one task and one value each.
        confidence: Of the interval.
        attempts: How many attempts the values come from; one for each value when unset.
    """
    counts, sums = _counts_and_sums(tasks)
    rate = min(max(float(sums.sum() / counts.sum()), 0.0), 1.0)
    n, n_tasks = float(attempts or counts.sum()), len(counts)
    se = _clustered_se(counts, sums, rate)
    n_effective = float(n_tasks)
    if se and n_tasks < n:
        n_effective = min(n, max(float(n_tasks), rate * (1 - rate) / se**2))
    low, high = wilson_interval(rate, n_effective, confidence)
    return Estimate(rate, low, high, se)


def estimate_mean(
    tasks: Sequence[ArrayLike], confidence: float = CONFIDENCE, *, draws: int = DRAWS, seed: int = 0
) -> Estimate:
    """The mean of any values, its clustered standard error, and a bootstrap interval.

    The standard error is that of a ratio with tasks as clusters (Miller 2024, "Adding Error Bars to Evals", section
    2.2, times G/(G-1) for G tasks). The interval holds the middle of the means of ``draws`` samples of as many tasks,
    drawn with replacement (Efron 1979, percentile interval); the same seed gives the same interval.

    Args:
        tasks: The values of each task, at least one task and one value each.
        confidence: Of the interval.
        draws: Bootstrap samples.
        seed: Of the draws.
    """
    counts, sums = _counts_and_sums(tasks)
    mean = float(sums.sum() / counts.sum())
    n_tasks = len(counts)
    if n_tasks == 1:
        return Estimate(mean, mean, mean)
    rng = np.random.default_rng(seed)
    means = []
    block = max(1, _BLOCK // n_tasks)
    for start in range(0, draws, block):
        drawn = rng.integers(0, n_tasks, (min(block, draws - start), n_tasks))
        means.append(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    low, high = np.quantile(np.concatenate(means), [(1 - confidence) / 2, (1 + confidence) / 2])
    return Estimate(mean, min(mean, float(low)), max(mean, float(high)), _clustered_se(counts, sums, mean))


def _clustered_se(counts: NDArray[np.float64], sums: NDArray[np.float64], mean: float) -> float | None:
    n_tasks = len(counts)
    if n_tasks < 2:
        return None
    residuals = sums - counts * mean
    return float(np.sqrt(n_tasks / (n_tasks - 1) * np.sum(residuals**2)) / counts.sum())


def _counts_and_sums(tasks: Sequence[ArrayLike]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    arrays = [np.asarray(task, dtype=np.float64).reshape(-1) for task in tasks]
    if not arrays or any(len(values) == 0 for values in arrays):
        raise ValueError("An estimate needs at least one task, and at least one value of each.")
    return (
        np.array([len(values) for values in arrays], dtype=np.float64),
        np.array([values.sum() for values in arrays], dtype=np.float64),
    )


def _check(attempts: int, solved: int, k: int) -> None:
    if not (1 <= k <= attempts and 0 <= solved <= attempts):
        raise ValueError(f"There is no pass@{k} of {solved} solved among {attempts} attempts.")
