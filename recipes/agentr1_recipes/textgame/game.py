"""A game that is played by typing commands. ``TextGameEnv`` makes an environment of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """What a game shows at its beginning or after a command."""

    #: What the player reads.
    text: str
    #: The commands that do something here.
    commands: tuple[str, ...]
    #: Names what the game is like now: equal where place, belongings and text are equal.
    state: str
    #: Whether the task is solved; the game is then over.
    won: bool = False


class TextGame(ABC):
    """One game, played once."""

    @abstractmethod
    async def begin(self) -> View:
        """The first view; its text ends with the task."""

    @abstractmethod
    async def do(self, command: str) -> View:
        """What a command leads to; one that makes no sense here changes nothing and says so."""

    async def close(self) -> None:
        """Release what the game holds; called once, also before ``begin``."""
