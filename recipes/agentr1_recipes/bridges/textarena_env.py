"""TextArena games. Run files name it ``textarena``.

A game's observation holds the whole play so far, so each turn replaces the context. The agent is player 0; in games
for several, ``opponent`` speaks for the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agentr1_core.errors import ConfigError, EnvError
from agentr1_core.task import Task
from agentr1_recipes.bridges.bridge import Bridge, Reply, library


class TextArenaEnv(Bridge):
    """One game.

    Args:
        id: What ``textarena.make`` is given, such as ``GuessTheNumber-v0``.
        players: How many play.
        opponent: A function from what a player sees to what it says, or its ``module:name``; needed for more than one.
        system_prompt, max_turns, seed: See ``Bridge``.

    Raises:
        ConfigError: Several play and nobody speaks for the others.
    """

    def __init__(
        self,
        id: str,
        *,
        players: int = 1,
        opponent: str | Callable[[str], str] | None = None,
        system_prompt: str | None = None,
        max_turns: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(system_prompt=system_prompt, max_turns=max_turns, seed=seed)
        if players > 1 and opponent is None:
            raise ConfigError(f"`env.players` is {players}.", "Set `env.opponent`: who speaks for the others.")
        self.id = id
        self.players = players
        self._opponent = opponent
        self._env: Any = None

    def begin(self, task: Task, seed: int) -> str:
        textarena = library("textarena", "textarena")
        if isinstance(self._opponent, str):
            module, _, name = self._opponent.partition(":")
            self._opponent = getattr(library(module, "textarena"), name)
        self._env = textarena.make(self.id)
        self._env.reset(num_players=self.players, seed=seed)
        player, text = self._env.get_observation()
        if player != 0:
            text, done = self._others()
            if done:
                raise EnvError(f"The game {self.id} ended before the agent's first turn.")
        return str(text)

    def play(self, answer: str) -> Reply:
        done, info = self._env.step(answer)
        text = ""
        if not done:
            text, done = self._others()
        if not done:
            return Reply(text, 0.0, info={"outside": info}, complete=True)
        rewards, game = self._env.close()
        self._env = None
        return Reply("The game is over.", float(rewards.get(0, 0.0)), terminated=True, info={"outside": game})

    def _others(self) -> tuple[str, bool]:
        """Let the others play until it is the agent's turn; what it then sees, and whether the game is over."""
        while True:
            player, text = self._env.get_observation()
            if player == 0:
                return str(text), False
            if not callable(self._opponent):
                raise EnvError(f"In {self.id} it is the turn of player {player}.", "Set `env.opponent`.")
            done, _ = self._env.step(self._opponent(str(text)))
            if done:
                return "", True

    def end(self) -> None:
        self._env = None
