"""ALFWorld as environments that share a pool of processes; run files name it ``alfworld``."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path

from agentr1_core.env import EnvSource
from agentr1_core.errors import ConfigError, DataError, PluginError
from agentr1_core.task import Task
from agentr1_recipes.alfworld.pool import GamePool, PooledGame, PoolSettings
from agentr1_recipes.alfworld.process import INSTALL
from agentr1_recipes.textgame.env import SYSTEM_PROMPT, GameRules, TextGameEnv


class AlfworldGames(EnvSource):
    """Plays the game that a row names in its columns ``game`` (a path) and ``task_type``.

    Args:
        python: Interpreter that has ``alfworld``; the trainer's own when left out.
        processes: How many games are played at once; set ``rollout.concurrency`` to the same.
        timeout_s: Seconds that loading a game or a command may take.
        wait_s: Seconds an episode may wait for a process.
        max_turns, system_prompt, show_commands, history, reward, turn_reward, invalid_reward: See ``GameRules``.

    Raises:
        ConfigError: A setting is out of range.
        PluginError: The interpreter has no ALFWorld, or is not there.
    """

    def __init__(
        self,
        *,
        python: str | None = None,
        processes: int = 8,
        timeout_s: float = 120.0,
        wait_s: float = 240.0,
        max_turns: int = 50,
        system_prompt: str = SYSTEM_PROMPT,
        show_commands: bool = True,
        history: int | None = None,
        reward: float = 1.0,
        turn_reward: float = 0.0,
        invalid_reward: float = 0.0,
    ) -> None:
        self.rules = GameRules(
            max_turns=max_turns,
            system_prompt=system_prompt,
            show_commands=show_commands,
            history=history,
            reward=reward,
            turn_reward=turn_reward,
            invalid_reward=invalid_reward,
        )
        if processes < 1 or timeout_s <= 0 or wait_s <= 0:
            raise ConfigError(
                f"`env`: processes {processes}, timeout_s {timeout_s} and wait_s {wait_s} must be above 0.",
                "Leave them out for the defaults.",
            )
        python = None if python is None else str(Path(python).expanduser())
        check_interpreter(python)
        self.pool = GamePool(PoolSettings(python=python, processes=processes, timeout_s=timeout_s, wait_s=wait_s))

    async def start(self) -> None:
        await self.pool.start()

    def expect(self, tasks: Sequence[Task]) -> None:
        self.pool.expect([task["game"] for task in tasks if "game" in task])

    def make(self, task: Task) -> TextGameEnv:
        if "game" not in task:
            raise DataError(f"{task.where}: column 'game' is missing.", "Take tasks of the recipe `alfworld`.")
        return TextGameEnv(PooledGame(self.pool, task["game"]), self.rules, task.get("task_type", "task"))

    async def close(self) -> None:
        await self.pool.close()


def check_interpreter(python: str | None) -> None:
    """Say before anything is loaded that ALFWorld is not there, as far as that can be seen without starting it.

    Raises:
        PluginError: This interpreter has no ``alfworld``, or the one that is named is not there.
    """
    if python is None and importlib.util.find_spec("alfworld") is None:
        raise PluginError(
            "The environment 'alfworld' needs the package alfworld, which is not installed here.", INSTALL
        )
    if python is not None and shutil.which(python) is None:
        raise PluginError(f"`env.python`: there is no interpreter '{python}'.", INSTALL)
