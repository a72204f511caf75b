"""Environments of GEM (``gem-llm``): games, maths and code with a five-tuple on texts. Run files name it ``gem``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentr1_core.task import Task
from agentr1_recipes.bridges.bridge import Bridge, Reply, library


class GemEnv(Bridge):
    """One GEM environment.

    Args:
        id: What ``gem.make`` is given, such as ``game:GuessTheNumber-v0-easy``.
        make: Further arguments of ``gem.make``.
        system_prompt, max_turns, seed: See ``Bridge``.
    """

    def __init__(
        self,
        id: str,
        *,
        make: Mapping[str, Any] | None = None,
        system_prompt: str | None = None,
        max_turns: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(system_prompt=system_prompt, max_turns=max_turns, seed=seed)
        self.id = id
        self.make = dict(make or {})
        self._env: Any = None

    def begin(self, task: Task, seed: int) -> str:
        self._env = library("gem", "gem").make(self.id, **self.make)
        text, info = self._env.reset(seed=seed)
        return _with_suffix(text, info)

    def play(self, answer: str) -> Reply:
        text, reward, terminated, truncated, info = self._env.step(answer)
        outside = {key: value for key, value in info.items() if key != "suffix"}
        return Reply(_with_suffix(text, info), float(reward), bool(terminated), bool(truncated), {"outside": outside})

    def end(self) -> None:
        env, self._env = self._env, None
        close = getattr(env, "close", None)
        if close is not None:
            close()


def _with_suffix(text: str, info: Mapping[str, Any]) -> str:
    """GEM keeps what asks for the next answer apart from the observation."""
    return "\n".join(part for part in (str(text), str(info.get("suffix") or "")) if part)
