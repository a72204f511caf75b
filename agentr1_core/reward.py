"""Rewards that look at a finished trajectory, beside those the environment gives step by step.

A reward is a function of the trajectory, plain or ``async``, that returns a number, several by name, or ``None``
where it does not apply. The collector adds the sum to the last step's reward and keeps each under its name.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import re
import string
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from agentr1_core.errors import RewardError
from agentr1_core.mdp import Trajectory
from agentr1_core.threads import call_in_thread

RewardValue = float | Mapping[str, float] | None
RewardFunction = Callable[[Trajectory], RewardValue | Awaitable[RewardValue]]


class RewardSum:
    """Several reward functions with weights, each under a deadline.

    Args:
        functions: Reward functions by name.
        weights: Factors by name; 1 where missing.
        timeout_s: Deadline of each in seconds.
    """

    def __init__(
        self,
        functions: Mapping[str, RewardFunction],
        weights: Mapping[str, float] | None = None,
        timeout_s: float | None = 60.0,
    ) -> None:
        self.functions = dict(functions)
        self.weights = dict(weights or {})
        self.timeout_s = timeout_s

    async def score(self, trajectory: Trajectory) -> dict[str, float]:
        """Each reward by name, weighted; functions that returned ``None`` are left out.

        Raises:
            RewardError: A function raised, passed its deadline or returned something that is no finite number.
        """
        parts = await asyncio.gather(*(self._one(name, f, trajectory) for name, f in self.functions.items()))
        return {name: value for part in parts for name, value in part.items()}

    async def _one(self, name: str, function: RewardFunction, trajectory: Trajectory) -> dict[str, float]:
        deadline = asyncio.timeout(self.timeout_s)
        try:
            async with deadline:
                value = await _call(function, trajectory)
        except Exception as error:
            if deadline.expired():
                raise RewardError(f"Reward '{name}' did not answer within {self.timeout_s:g} seconds.") from error
            raise RewardError(f"Reward '{name}' raised {type(error).__name__}: {error}") from error
        if value is None:
            return {}
        named = (
            {f"{name}/{part}": number for part, number in value.items()}
            if isinstance(value, Mapping)
            else {name: value}
        )
        weight = self.weights.get(name, 1.0)
        return {key: weight * _finite(key, number) for key, number in named.items()}


async def _call(function: RewardFunction, trajectory: Trajectory) -> RewardValue:
    if inspect.iscoroutinefunction(function):
        return await function(trajectory)  # type: ignore[no-any-return]
    value = await call_in_thread(function, trajectory)
    return await value if inspect.isawaitable(value) else value  # type: ignore[no-any-return]


def _finite(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise RewardError(f"Reward '{name}' returned {value!r}.", "Return a number, a mapping or None.") from error
    if not math.isfinite(number):
        raise RewardError(f"Reward '{name}' returned {number}.", "Return a finite number, or None where it is unknown.")
    return number


def final_answer(trajectory: Trajectory) -> str:
    """The text of the last action: what the agent said in the end; empty without a step."""
    if not trajectory.steps:
        return ""
    action = trajectory.steps[-1].action
    content = action.message.get("content")
    return str(content) if content else action.text


def exact_match(trajectory: Trajectory) -> float:
    """1 if the final answer equals one of the ground truths, up to case, articles, punctuation and spaces.

    The normalisation is that of SQuAD (Rajpurkar et al. 2016).
    """
    wanted = _truths(trajectory, "exact_match")
    return float(_normalise(final_answer(trajectory)) in {_normalise(str(truth)) for truth in wanted})


def contains_answer(trajectory: Trajectory) -> float:
    """1 if the final answer contains one of the ground truths, after the same normalisation."""
    said = f" {_normalise(final_answer(trajectory))} "
    return float(any(f" {_normalise(str(truth))} " in said for truth in _truths(trajectory, "contains_answer")))


def math_answer(trajectory: Trajectory) -> float:
    """1 if the final answer is mathematically equal to the ground truth, as judged by ``math-verify``."""
    try:
        from math_verify import parse, verify
    except ImportError as error:
        raise RewardError("Reward 'math_answer' needs math-verify.", "pip install math-verify") from error
    # Its own time-outs use signals, which work in the main thread only; the collector's deadline covers this.
    said = parse(final_answer(trajectory), parsing_timeout=None)
    return float(
        any(
            verify(parse(str(truth), parsing_timeout=None), said, timeout_seconds=None)
            for truth in _truths(trajectory, "math_answer")
        )
    )


def score_function(function: Callable[..., Any]) -> RewardFunction:
    """A ``compute_score(data_source, solution_str, ground_truth, extra_info)`` function as a reward."""

    def reward(trajectory: Trajectory) -> RewardValue:
        task = trajectory.task
        score = function(
            data_source=task.get("data_source"),
            solution_str=final_answer(trajectory),
            ground_truth=_ground_truth(task),
            extra_info=task.get("extra_info"),
        )
        return score.get("score") if isinstance(score, Mapping) else score

    return reward


#: The built-in rewards by the names that run files use.
REWARDS: Mapping[str, RewardFunction] = {
    "exact_match": exact_match,
    "contains_answer": contains_answer,
    "math_answer": math_answer,
}


def _ground_truth(task: Mapping[str, Any]) -> Any:
    from agentr1_core.task import Task

    return (task if isinstance(task, Task) else Task(task)).ground_truth


def _truths(trajectory: Trajectory, name: str) -> Sequence[Any]:
    truth = _ground_truth(trajectory.task)
    if truth is None:
        raise RewardError(
            f"Reward '{name}' needs a ground truth, but the row has none.",
            "Give rows `reward_model: {ground_truth: ...}` or a column `ground_truth` or `answer`.",
        )
    if isinstance(truth, Mapping) and "target" in truth:
        truth = truth["target"]
    return list(truth) if isinstance(truth, Sequence) and not isinstance(truth, str) else [truth]


def _normalise(text: str) -> str:
    text = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())
