"""One attempt at a task, as one line of ``results.jsonl``, and the keys by which tasks are known again.

A key follows from the task's content, not from its place, so that results stay valid when more tasks are played later.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from numbers import Real
from typing import Any

from agentr1_core.errors import DataError
from agentr1_core.mdp import StopReason, Trajectory
from agentr1_core.metrics import is_success
from agentr1_core.task import Task

#: Columns that say what kind of task a row is; the first one that tells tasks apart is the default grouping.
GROUP_COLUMNS = ("task_type", "data_source", "ability")
#: A column with more values than this names tasks and groups none.
_MOST_GROUPS = 40


@dataclass(frozen=True, slots=True)
class Attempt:
    """What one episode came to."""

    #: The task's key, and which attempt at it this is, from 0.
    task: str
    attempt: int
    #: What people know the task by.
    name: str
    success: bool
    ret: float
    steps: int
    #: Tokens sampled, and tokens of all prompts.
    tokens: int
    prompt_tokens: int
    stop_reason: str
    seconds: float
    #: The cause, of a failed episode and of one that a limit ended.
    error: str | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    #: Numbers that the environment put into the last step's ``info``.
    info: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether it says nothing about the model: the environment, the reward or the engine failed."""
        return StopReason(self.stop_reason).is_failure

    @classmethod
    def of(cls, trajectory: Trajectory, key: str, attempt: int, name: str) -> Attempt:
        """The attempt that a trajectory is."""
        last = trajectory.steps[-1].info if trajectory.steps else {}
        return cls(
            task=key,
            attempt=attempt,
            name=name,
            success=is_success(trajectory) and not trajectory.stop_reason.is_failure,
            ret=trajectory.ret,
            steps=len(trajectory.steps),
            tokens=trajectory.n_tokens,
            prompt_tokens=sum(step.n_prompt for step in trajectory.steps),
            stop_reason=trajectory.stop_reason.value,
            seconds=round(trajectory.seconds, 3),
            error=trajectory.error,
            rewards=dict(trajectory.rewards),
            info=_numbers(last),
            counters=_numbers(trajectory.counters),
        )

    def as_row(self) -> dict[str, Any]:
        """As it is written; ``ret`` is called ``return``."""
        return {"return" if name == "ret" else name: value for name, value in asdict(self).items()}

    @classmethod
    def from_row(cls, row: Mapping[str, Any], where: str) -> Attempt:
        """As it was written.

        Raises:
            DataError: The row is none of ours; names the file.
        """
        try:
            attempt = cls(**{"ret" if name == "return" else name: value for name, value in row.items()})
            StopReason(attempt.stop_reason)
        except (TypeError, ValueError) as error:
            raise DataError(f"'{where}' holds a line that is no attempt: {error}.", "Name another folder.") from error
        return attempt


def keyed(tasks: Sequence[Task]) -> dict[str, Task]:
    """Tasks by key, in order; rows that are alike are told apart by a number."""
    seen: Counter[str] = Counter()
    by_key: dict[str, Task] = {}
    for task in tasks:
        text = json.dumps(dict(task), sort_keys=True, ensure_ascii=False, default=_plain)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        seen[digest] += 1
        by_key[digest if seen[digest] == 1 else f"{digest}-{seen[digest]}"] = task
    return by_key


def task_name(task: Task) -> str:
    """The row's own id where it has one, else where it stands."""
    for place in (task, task.extra_info):
        for column in ("id", "task_id", "name"):
            if isinstance(place.get(column), (str, int)):
                return str(place[column])
    return task.where


def group_of(task: Task, column: str) -> str | None:
    """The row's value of a column, which may stand in ``extra_info``."""
    value = task.get(column, task.extra_info.get(column))
    return None if value is None else str(value)


def default_grouping(tasks: Sequence[Task]) -> str | None:
    """The first of ``GROUP_COLUMNS`` with 2 to 40 values; ``None`` where all tasks are of one kind."""
    for column in GROUP_COLUMNS:
        if 1 < len({group_of(task, column) for task in tasks}) <= _MOST_GROUPS:
            return column
    return None


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    """The finite numbers among values, truth values as 0 and 1; also those of numpy. Success stands by itself."""
    found = {}
    for name, value in values.items():
        if name == "success":
            continue
        if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
            value = value.item()
        if isinstance(value, Real) and math.isfinite(value):
            found[str(name)] = float(value)
    return found


def _plain(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else str(value)
