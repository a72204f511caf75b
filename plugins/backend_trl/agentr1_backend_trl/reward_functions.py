"""TRL's reward functions on whole trajectories.

The trainer hands them ``prompts``, ``completions`` (every message after the prompt, assistant and feedback in order),
``completion_ids`` (all sampled tokens), every column of the data set, and ``trajectories``. Their weighted sum is
added to the reward of the last step.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentr1_core.errors import RewardError
from agentr1_core.mdp import Group, Message, Trajectory


def refuse_non_numbers(function: Any) -> Any:
    """The reward function, which now raises ``RewardError`` when it returns NaN or infinity; ``None`` stays allowed.

    TRL writes ``None`` as NaN, so that afterwards one could not be told from the other. Models and model ids pass
    through unchanged.
    """
    if isinstance(function, str) or not callable(function) or hasattr(function, "parameters"):
        return function
    name = getattr(function, "__name__", type(function).__name__)
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - an object whose __call__ is a coroutine function
    )
    if is_async:

        async def checked_async(*args: Any, **kwargs: Any) -> Sequence[float | None]:
            return _checked(name, await function(*args, **kwargs))

        wrapper: Callable[..., Any] = checked_async
    else:

        def checked(*args: Any, **kwargs: Any) -> Sequence[float | None]:
            return _checked(name, function(*args, **kwargs))

        wrapper = checked
    functools.update_wrapper(wrapper, function)
    if not hasattr(function, "__name__"):
        wrapper.__name__ = name
    return wrapper


def _checked(name: str, values: Sequence[float | None]) -> Sequence[float | None]:
    for position, value in enumerate(values):
        if value is not None and not math.isfinite(value):
            raise RewardError(
                f"Reward function '{name}' returned {value} for trajectory {position} of its batch.",
                "Return a finite number, or None where the reward does not apply.",
            )
    return values


def completion_of(trajectory: Trajectory) -> list[Message]:
    """Every message after the first prompt: what the model said and what it was answered, in order."""
    return [message for step in trajectory.steps for message in (step.action.message, *step.feedback)]


def reward_inputs(
    rows: Sequence[Mapping[str, Any]], trajectories: Sequence[Trajectory]
) -> tuple[list[dict[str, Any]], list[Any], list[Any], list[list[int]]]:
    """``inputs``, ``prompts``, ``completions`` and ``completion_ids`` as TRL's ``_calculate_rewards`` takes them.

    A row whose prompt is a plain string gets its completion as one too, as in TRL.
    """
    inputs = [{**row, "trajectories": trajectory} for row, trajectory in zip(rows, trajectories, strict=True)]
    prompts: list[Any] = []
    completions: list[Any] = []
    for row, trajectory in zip(rows, trajectories, strict=True):
        prompt = row.get("prompt")
        prompts.append(list(trajectory.steps[0].observation.messages) if prompt is None else prompt)
        said = completion_of(trajectory)
        if isinstance(prompt, str):
            completions.append("\n".join(step.action.text for step in trajectory.steps))
        else:
            completions.append(said)
    sampled = [[int(i) for step in t.steps for i in step.action.token_ids] for t in trajectories]
    return inputs, prompts, completions, sampled


def add_rewards(trajectory: Trajectory, scores: Mapping[str, float | None]) -> Trajectory:
    """The trajectory with weighted scores added to its last step's reward; ``None`` adds nothing.

    If no function has a score, the reward stays what the environment gave, which may be none at all.
    """
    given = {name: value for name, value in scores.items() if value is not None}
    if not given:
        return trajectory
    last = trajectory.steps[-1]
    last = replace(last, reward=(last.reward or 0.0) + sum(given.values()))
    return replace(trajectory, steps=(*trajectory.steps[:-1], last), rewards={**trajectory.rewards, **given})


def map_trajectories(groups: Sequence[Group], change: Mapping[tuple[str, str], Trajectory]) -> tuple[Group, ...]:
    """Groups with some of their usable trajectories replaced, by group and trajectory id."""
    return tuple(
        replace(group, trajectories=tuple(change.get((group.id, t.id), t) for t in group.trajectories))
        for group in groups
    )
