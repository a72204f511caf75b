"""Gymnasium environments, seen through a codec that puts observations into words and answers into actions.

Run files name it ``gymnasium``. An answer that is no action costs a turn and is explained; the environment behind is
not stepped by it.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from agentr1_core.errors import ConfigError
from agentr1_core.task import Task
from agentr1_recipes.bridges.bridge import Bridge, Reply, library


class TextCodec(ABC):
    """Between an environment and words. Subclass it for spaces of your own."""

    def introduce(self, env: Any) -> str:
        """Said once, before the first observation; nothing when empty."""
        return ""

    def show(self, observation: Any, info: Mapping[str, Any]) -> str:
        """An observation in words."""
        return str(observation)

    @abstractmethod
    def parse(self, answer: str, env: Any) -> Any:
        """The action that an answer means.

        Raises:
            ValueError: It means none; the message is shown to the model.
        """


class DiscreteCodec(TextCodec):
    """Numbered actions: the last name or number of an action in the answer counts.

    Args:
        names: Names of the actions in order; their numbers serve as names when unset.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self.names = None if names is None else [str(name) for name in names]

    def introduce(self, env: Any) -> str:
        start = int(env.action_space.start)
        names = self._names(env)
        offered = [
            str(start + i) if name == str(start + i) else f"{start + i} ({name})" for i, name in enumerate(names)
        ]
        return f"Actions: {', '.join(offered)}. Answer with one of them."

    def parse(self, answer: str, env: Any) -> Any:
        start, names = int(env.action_space.start), self._names(env)
        known = {name.lower(): start + i for i, name in enumerate(names)} | {
            str(start + i): start + i for i in range(len(names))
        }
        pattern = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
        found = re.findall(rf"(?<![\w-])(?:{pattern})(?![\w-])", answer.lower())
        if not found:
            raise ValueError(f"That is no action. {self.introduce(env)}")
        return known[found[-1]]

    def _names(self, env: Any) -> list[str]:
        space = env.action_space
        return self.names or [str(int(space.start) + i) for i in range(int(space.n))]


class PlainTextCodec(TextCodec):
    """For spaces of text: the answer, without spaces around it, is the action."""

    def parse(self, answer: str, env: Any) -> Any:
        action = answer.strip()
        if not env.action_space.contains(action):
            raise ValueError("That answer is not allowed here: it is empty, too long or has other characters.")
        return action


class GymnasiumEnv(Bridge):
    """One Gymnasium environment.

    Args:
        id: What ``gymnasium.make`` is given.
        make: Further arguments of ``gymnasium.make``.
        codec: ``module:Class`` of a ``TextCodec``; chosen by the action space (discrete or text) when unset.
        codec_settings: Arguments of the codec, such as ``names`` of discrete actions.
        invalid_reward: Reward of a turn whose answer is no action.
        system_prompt, max_turns, seed: See ``Bridge``.
    """

    def __init__(
        self,
        id: str,
        *,
        make: Mapping[str, Any] | None = None,
        codec: str | type[TextCodec] | None = None,
        codec_settings: Mapping[str, Any] | None = None,
        invalid_reward: float = 0.0,
        system_prompt: str | None = None,
        max_turns: int | None = 100,
        seed: int = 0,
    ) -> None:
        super().__init__(system_prompt=system_prompt, max_turns=max_turns, seed=seed)
        self.id = id
        self.make = dict(make or {})
        self.codec_class = codec
        self.codec_settings = dict(codec_settings or {})
        self.invalid_reward = invalid_reward
        self._env: Any = None
        self._counters: dict[str, float] = {"answers/invalid": 0}

    @property
    def counters(self) -> Mapping[str, float]:
        return self._counters

    def begin(self, task: Task, seed: int) -> str:
        gymnasium = library("gymnasium", "gymnasium")
        self.end()
        self._env = gymnasium.make(self.id, **self.make)
        self._codec = self._choose(gymnasium)
        observation, info = self._env.reset(seed=seed)
        parts = (self._codec.introduce(self._env), self._codec.show(observation, info))
        return "\n\n".join(part for part in parts if part)

    def _choose(self, gymnasium: Any) -> TextCodec:
        chosen = self.codec_class
        if isinstance(chosen, str):
            module, _, name = chosen.partition(":")
            chosen = getattr(library(module, "gymnasium"), name, None)
        if chosen is None and self.codec_class is None:
            space = self._env.action_space
            if isinstance(space, gymnasium.spaces.Discrete):
                chosen = DiscreteCodec
            elif isinstance(space, gymnasium.spaces.Text):
                chosen = PlainTextCodec
        if not (isinstance(chosen, type) and issubclass(chosen, TextCodec)):
            raise ConfigError(
                f"`env.codec`: no text codec for {self.id} with actions {self._env.action_space}.",
                "Write a TextCodec and name it as `package.module:Class`.",
            )
        return chosen(**self.codec_settings)

    def play(self, answer: str) -> Reply:
        try:
            action = self._codec.parse(answer, self._env)
        except ValueError as error:
            self._counters["answers/invalid"] += 1
            return Reply(str(error), self.invalid_reward)
        observation, reward, terminated, truncated, info = self._env.step(action)
        shown = self._codec.show(observation, info)
        return Reply(shown, float(reward), bool(terminated), bool(truncated), {"outside": info})

    def end(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()
