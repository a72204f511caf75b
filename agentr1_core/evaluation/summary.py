"""From attempts to what an evaluation says: rates, means and intervals, over all tasks, by group and by task.

Pure functions. Failed episodes say nothing about the model: they are left out of every figure and counted beside them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from agentr1_core.evaluation.attempt import Attempt
from agentr1_core.evaluation.estimates import CONFIDENCE, Estimate, estimate_mean, estimate_rate, pass_all_k, pass_at_k


@dataclass(frozen=True, slots=True)
class TaskResult:
    """All attempts at one task that tell something."""

    task: str
    name: str
    group: str | None
    attempts: tuple[Attempt, ...]
    #: Episodes that failed and are left out.
    failed: int = 0

    @property
    def solved(self) -> int:
        """Attempts that solved it."""
        return sum(attempt.success for attempt in self.attempts)

    def mean(self, value: Callable[[Attempt], float]) -> float:
        """The mean of a value over its attempts."""
        return sum(value(attempt) for attempt in self.attempts) / len(self.attempts)


@dataclass(frozen=True, slots=True)
class Figures:
    """What attempts at some tasks came to. Without a usable attempt every mapping is empty."""

    tasks: int
    attempts: int
    failed: int
    #: ``success``, ``pass@k`` and ``pass^k`` by name: shares in [0, 1].
    rates: Mapping[str, Estimate] = field(default_factory=dict)
    #: ``reward``, ``rewards/<name>``, ``steps``, ``tokens``, ``prompt_tokens``, ``seconds``, ``info/<name>``: means.
    means: Mapping[str, Estimate] = field(default_factory=dict)
    #: Tasks with too few usable attempts for a ``pass@k``, by name; left out of it.
    short: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Summary:
    """A whole evaluation."""

    figures: Figures
    groups: Mapping[str, Figures]
    tasks: tuple[TaskResult, ...]
    stop_reasons: Mapping[str, int]
    #: How often each cause made an episode fail.
    failures: Mapping[str, int]
    #: Sums of the episodes' counters.
    counters: Mapping[str, float]
    #: Success when each failed episode counts as not solved.
    success_if_failed_count: float | None

    def as_dict(self) -> dict[str, Any]:
        """For JSON; the table of tasks is a file of its own."""
        return {
            **asdict(self.figures),
            "success_if_failed_count": self.success_if_failed_count,
            "groups": {name: asdict(figures) for name, figures in self.groups.items()},
            "stop_reasons": dict(self.stop_reasons),
            "failures": dict(self.failures),
            "counters": dict(self.counters),
        }


def summarise(
    attempts: Sequence[Attempt],
    groups: Mapping[str, str | None] | None = None,
    *,
    k: int = 1,
    confidence: float = CONFIDENCE,
) -> Summary:
    """All figures.

    Args:
        attempts: Of all tasks, in any order; one for each task and number.
        groups: The group of each task by its key.
        k: Attempts at each task; ``pass@`` is told for 1, 2, 4, ... and k.
        confidence: Of the intervals.
    """
    groups = groups or {}
    by_task: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in attempts:
        by_task[attempt.task].append(attempt)
    tasks = tuple(_task_result(key, group, groups.get(key)) for key, group in by_task.items())
    by_group: dict[str, list[TaskResult]] = defaultdict(list)
    for task in tasks:
        if task.group is not None:
            by_group[task.group].append(task)
    failed = [attempt for attempt in attempts if attempt.failed]
    counters: Counter[str] = Counter()
    for attempt in attempts:
        counters.update(attempt.counters)
    return Summary(
        figures=_figures(tasks, k, confidence),
        groups={name: _figures(by_group[name], k, confidence) for name in sorted(by_group)},
        tasks=tasks,
        stop_reasons=dict(sorted(Counter(attempt.stop_reason for attempt in attempts).items())),
        failures=dict(Counter(attempt.error or attempt.stop_reason for attempt in failed).most_common()),
        counters=dict(sorted(counters.items())),
        success_if_failed_count=sum(each.success for each in attempts) / len(attempts) if attempts else None,
    )


def _task_result(key: str, attempts: Sequence[Attempt], group: str | None) -> TaskResult:
    usable = tuple(sorted((each for each in attempts if not each.failed), key=lambda each: each.attempt))
    return TaskResult(key, attempts[0].name, group, usable, len(attempts) - len(usable))


def _figures(tasks: Sequence[TaskResult], k: int, confidence: float) -> Figures:
    usable = [task for task in tasks if task.attempts]
    n_attempts = sum(len(task.attempts) for task in usable)
    failed = sum(task.failed for task in tasks)
    if not usable:
        return Figures(len(tasks), n_attempts, failed)
    rates = {"success": estimate_rate([[each.success for each in task.attempts] for task in usable], confidence)}
    short: dict[str, int] = {}
    for size in _sizes(k):
        enough = [task for task in usable if len(task.attempts) >= size]
        if len(enough) < len(tasks):
            short[f"pass@{size}"] = len(tasks) - len(enough)
        if not enough:
            continue
        for name, chance in (("pass@", pass_at_k), ("pass^", pass_all_k)):
            if size == 1 and name == "pass^":
                continue  # the same as pass@1
            chances = [[chance(len(task.attempts), task.solved, size)] for task in enough]
            n_used = sum(len(task.attempts) for task in enough)
            rates[f"{name}{size}"] = estimate_rate(chances, confidence, attempts=n_used)
    means = {name: estimate_mean(values, confidence) for name, values in _columns(usable).items()}
    return Figures(len(tasks), n_attempts, failed, rates, means, short)


def _sizes(k: int) -> list[int]:
    """1, 2, 4, ... below k, and k; none for a single attempt, whose pass@1 is the success rate."""
    if k == 1:
        return []
    return sorted({2**power for power in range(k.bit_length()) if 2**power < k} | {k})


def _columns(tasks: Sequence[TaskResult]) -> dict[str, list[list[float]]]:
    """Each column's values by task; a task without one of an optional column is left out of it."""
    columns: dict[str, list[list[float]]] = {}
    for name in ("reward", "steps", "tokens", "prompt_tokens", "seconds"):
        attribute = "ret" if name == "reward" else name
        columns[name] = [[float(getattr(each, attribute)) for each in task.attempts] for task in tasks]
    for kind in ("rewards", "info"):
        names = sorted({name for task in tasks for each in task.attempts for name in getattr(each, kind)})
        for name in names:
            values = [
                [getattr(each, kind)[name] for each in task.attempts if name in getattr(each, kind)] for task in tasks
            ]
            columns[f"{kind}/{name}"] = [of_task for of_task in values if of_task]
    return columns
