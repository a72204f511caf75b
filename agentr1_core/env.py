"""Environments: what the agent acts in, and what decides what it sees next.

Implement ``AgentEnv``: ``reset`` shows the first observation, ``step`` answers an action. The environment owns the
context: the observation it returns is all the model sees, whether it appends, truncates, summarises or rewrites.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentr1_core.errors import EnvError
from agentr1_core.mdp import Action, Message, Observation
from agentr1_core.task import Task
from agentr1_core.threads import call_in_thread

#: What an environment may return as an observation: a user message's text, one message, several, or the record.
ObservationLike = str | Message | Sequence[Message] | Observation


@dataclass(frozen=True, slots=True)
class StepResult:
    """What an environment answers to an action.

    ``terminated``: a terminal state, the task is over. ``truncated``: cut short by a limit that is not part of the
    task (turns, time); the state still has a value. Iterates as the five-tuple of Gymnasium.
    """

    observation: Observation | None
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Any:
        return iter((self.observation, self.reward, self.terminated, self.truncated, self.info))


class AgentEnv(ABC):
    """A task with state. One instance plays one episode.

    ``step`` returns ``(observation, reward, terminated, truncated, info)`` or the older
    ``(observation, reward, done, info)``. Methods may be plain or ``async``. ``close`` is awaited exactly once, on
    every path: after the end, a failure, a time-out or a cancellation.
    """

    @abstractmethod
    async def reset(self, task: Task) -> ObservationLike:
        """Begin the episode and return the first observation."""

    @abstractmethod
    async def step(self, action: Action) -> StepResult | tuple[Any, ...]:
        """Answer one action. After ``terminated`` or ``truncated`` the observation may be ``None``."""

    async def close(self) -> None:
        """Release what the episode holds."""

    @property
    def counters(self) -> Mapping[str, float]:
        """Numbers about this episode that runs report as sums."""
        return {}


class EnvSource(ABC):
    """Makes environments that share something costly, such as processes. A run file names it like an environment.

    One instance serves all episodes of a run's process; the settings of the run file go to its constructor.
    """

    @abstractmethod
    def make(self, task: Task) -> AgentEnv:
        """The environment of one episode; it waits for nothing, ``reset`` does that."""

    async def start(self) -> None:
        """Called once before the first episode."""

    def expect(self, tasks: Sequence[Task]) -> None:
        """Told which tasks are played next, in order and each as often as it is played; it may prepare them."""

    async def close(self) -> None:
        """Called once when no episode is played any more, on every path."""


class EnvWrapper(AgentEnv):
    """An environment around another; override what should differ."""

    def __init__(self, env: AgentEnv) -> None:
        self.env = env

    async def reset(self, task: Task) -> ObservationLike:
        return await reset_env(self.env, task)

    async def step(self, action: Action) -> StepResult | tuple[Any, ...]:
        return await step_env(self.env, action)

    async def close(self) -> None:
        await close_env(self.env)

    @property
    def counters(self) -> Mapping[str, float]:
        return self.env.counters


def as_observation(value: ObservationLike, source: str = "the environment") -> Observation:
    """Any accepted form of an observation as the record.

    Raises:
        EnvError: It is empty or of another type.
    """
    if isinstance(value, Observation):
        observation = value
    elif isinstance(value, str):
        observation = Observation(({"role": "user", "content": value},))
    elif isinstance(value, dict):
        observation = Observation((value,))
    elif isinstance(value, (list, tuple)) and all(isinstance(message, dict) for message in value):
        observation = Observation(tuple(value))
    else:
        raise EnvError(
            f"{source} returned an observation of type {type(value).__name__}.",
            "Return a string, a message, a list of messages or an Observation.",
        )
    if not observation.messages:
        raise EnvError(f"{source} returned an observation without messages.", "Show the model at least one message.")
    return observation


async def reset_env(env: AgentEnv, task: Task) -> Observation:
    """Reset an environment, whichever form its answer takes (``(observation, info)`` included)."""
    answer = await _call(env.reset, task)
    if isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], Mapping) and "role" not in answer[1]:
        answer = answer[0]
    return as_observation(answer, f"{type(env).__name__}.reset")


async def step_env(env: AgentEnv, action: Action) -> StepResult:
    """Step an environment, whichever form its answer takes.

    Raises:
        EnvError: The answer has another shape, or its reward is not a finite number.
    """
    source = f"{type(env).__name__}.step"
    answer = await _call(env.step, action)
    if isinstance(answer, StepResult) or (isinstance(answer, tuple) and len(answer) == 5):
        observation, reward, terminated, truncated, info = answer
    elif isinstance(answer, tuple) and len(answer) == 4:
        observation, reward, terminated, info = answer
        info = info or {}
        # The older API folds truncation into done and says so in info, as Gym's TimeLimit did.
        truncated = bool(info.get("TimeLimit.truncated", False))
        terminated = bool(terminated) and not truncated
    else:
        shape = f"a tuple of {len(answer)}" if isinstance(answer, tuple) else type(answer).__name__
        raise EnvError(
            f"{source} returned {shape}.",
            "Return (observation, reward, terminated, truncated, info) or (observation, reward, done, info).",
        )
    done = bool(terminated) or bool(truncated)
    if observation is None and not done:
        raise EnvError(f"{source} returned no observation although the episode goes on.", "Return what is shown next.")
    return StepResult(
        observation=None if observation is None else as_observation(observation, source),
        reward=finite_reward(reward, source),
        terminated=bool(terminated),
        truncated=bool(truncated),
        info=info or {},
    )


def finite_reward(reward: Any, source: str) -> float | None:
    """A reward as a number, or ``None`` for none.

    Raises:
        EnvError: It is not a finite number.
    """
    if reward is None:
        return None
    try:
        value = float(reward)
    except (TypeError, ValueError) as error:
        raise EnvError(f"{source} returned the reward {reward!r}.", "Return a number or None.") from error
    if not math.isfinite(value):
        raise EnvError(f"{source} returned the reward {value}.", "Return a finite number, or None for no reward.")
    return value


async def close_env(env: AgentEnv) -> None:
    """Close an environment, whether its ``close`` is plain or ``async``."""
    await _call(env.close)


async def _call(method: Callable[..., Any], *args: Any) -> Any:
    """Call a method that may be plain; a plain one runs in a thread, since it may block."""
    if inspect.iscoroutinefunction(method):
        return await method(*args)
    answer = await call_in_thread(method, *args)
    return await answer if inspect.isawaitable(answer) else answer
