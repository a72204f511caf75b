"""What all bridges share: an outside environment of texts, driven from threads, as an ``AgentEnv``.

A bridge implements ``begin``, ``play`` and ``end`` as plain blocking methods. This class runs them outside the event
loop, keeps the conversation, and bounds its turns.
"""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentr1_core.env import AgentEnv, StepResult
from agentr1_core.errors import ConfigError, PluginError
from agentr1_core.mdp import Action, Message, Observation
from agentr1_core.task import Task
from agentr1_core.threads import call_in_thread


@dataclass(frozen=True, slots=True)
class Reply:
    """What the outside environment answers."""

    text: str
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)
    #: Whether ``text`` holds the whole history, so that it replaces the conversation instead of continuing it.
    complete: bool = False


class Bridge(AgentEnv):
    """Base of the bridges.

    Args:
        system_prompt: Shown first.
        max_turns: Turns until the episode is truncated; the outside environment's own limit when unset.
        seed: Seed of the outside environment where the row has no column ``seed``.
    """

    def __init__(self, *, system_prompt: str | None = None, max_turns: int | None = None, seed: int = 0) -> None:
        if max_turns is not None and max_turns < 1:
            raise ConfigError(f"`env.max_turns` is {max_turns}.", "Give at least one turn, or leave it out.")
        self.system_prompt = system_prompt
        self.max_turns = max_turns
        self.seed = seed
        self._head: tuple[Message, ...] = ()
        if system_prompt is not None:
            self._head = ({"role": "system", "content": system_prompt},)

    @abstractmethod
    def begin(self, task: Task, seed: int) -> str:
        """Start an episode and return what is shown first."""

    @abstractmethod
    def play(self, answer: str) -> Reply:
        """Answer what the agent said."""

    def end(self) -> None:
        """Release the outside environment; called once, also without ``begin``."""

    async def reset(self, task: Task) -> Observation:
        self._turns = 0
        text = await call_in_thread(self.begin, task, int(task.get("seed", self.seed)))
        self._messages: tuple[Message, ...] = (*self._head, {"role": "user", "content": text})
        return Observation(self._messages)

    async def step(self, action: Action) -> StepResult:
        self._turns += 1
        said = action.message.get("content")
        reply = await call_in_thread(self.play, str(said) if said else action.text)
        shown: Message = {"role": "user", "content": reply.text}
        self._messages = (*self._head, shown) if reply.complete else (*self._messages, action.message, shown)
        out_of_turns = self.max_turns is not None and self._turns >= self.max_turns and not reply.terminated
        truncated = reply.truncated or out_of_turns
        return StepResult(Observation(self._messages), reply.reward, reply.terminated, truncated, reply.info)

    async def close(self) -> None:
        await call_in_thread(self.end)


def library(module: str, extra: str) -> Any:
    """The library a bridge is to.

    Raises:
        PluginError: It is not installed or does not import.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PluginError(
            f"The environment '{extra}' needs the package {module}: {error}.",
            f"pip install 'agentr1-recipes[{extra.replace('_', '-')}]'",
        ) from error
