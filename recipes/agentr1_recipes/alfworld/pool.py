"""Processes that play games, shared by all episodes of a run.

An episode takes a process for as long as it lasts. Processes that nobody has load the games that are played next
meanwhile; one that dies is replaced, and the game that it played goes on, since the same commands lead to the same
state. ``AlfworldGames`` owns the pool.
"""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from agentr1_core.errors import EnvError
from agentr1_recipes.alfworld.process import GameProcess, ProcessDied
from agentr1_recipes.textgame.game import TextGame, View

#: A view, and what the expert would do.
Seen = tuple[View, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSettings:
    """How many processes there are and how long they may take."""

    #: Interpreter that has ``alfworld``; this one when ``None``.
    python: str | None = None
    processes: int = 8
    #: Seconds for one request: loading a game, or a command.
    timeout_s: float = 120.0
    #: Seconds an episode may wait for a process.
    wait_s: float = 240.0
    #: Games after which a process is replaced, since TextWorld keeps memory of every game it loads.
    games_per_process: int = 25
    #: Whether views come with what ALFWorld's expert would do.
    expert: bool = False


class _Slot:
    """A place for a process, with the game that is loaded ahead."""

    def __init__(self) -> None:
        self.process: GameProcess | None = None
        self.game: str | None = None
        self.loading: asyncio.Task[Seen] | None = None
        #: Games that its process has loaded.
        self.n_loaded = 0


class GamePool:
    """Hands out processes. All of it runs in one event loop."""

    def __init__(self, settings: PoolSettings) -> None:
        self.settings = settings
        #: Processes that had to be replaced so far.
        self.n_replaced = 0
        self._idle = [_Slot() for _ in range(settings.processes)]
        self._slots = tuple(self._idle)
        self._free = asyncio.Semaphore(settings.processes)
        self._expected: list[str] = []
        self._numbers = itertools.count()
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    async def start(self) -> None:
        """Start the first process, to see that ALFWorld works; the others start when needed.

        Raises:
            PluginError: ALFWorld is not installed there, or does not work.
        """
        if self._folder is not None:
            return
        self._folder = tempfile.TemporaryDirectory(prefix="agentr1-alfworld-", ignore_cleanup_errors=True)
        try:
            await self._started(self._slots[0])
        except BaseException:
            await self.close()
            raise

    def expect(self, games: Sequence[str]) -> None:
        """Say which games are begun next, in order; free processes load them ahead."""
        self._expected = list(games)
        if self._folder is not None:
            self._load_ahead()

    async def take(self, game: str) -> tuple[_Slot, Seen]:
        """A process with the game loaded.

        Raises:
            EnvError: No process became free in time, or the game cannot be loaded.
        """
        try:
            async with asyncio.timeout(self.settings.wait_s):
                await self._free.acquire()
        except TimeoutError:
            raise EnvError(
                f"No game process became free within {self.settings.wait_s:g} s; there are {self.settings.processes}.",
                "Set `env.processes` to `rollout.concurrency`, or lower that.",
            ) from None
        if game in self._expected:
            self._expected.remove(game)
        slot = self._choose(game)
        self._idle.remove(slot)
        try:
            return slot, await self._loaded(slot, game)
        except BaseException:
            await self.give_back(slot)
            raise

    async def replace(self, slot: _Slot, game: str) -> Seen:
        """A new process in the place of one that died, with the game loaded from its beginning."""
        self.n_replaced += 1
        await self._empty(slot)
        return await self._load(slot, game)

    async def give_back(self, slot: _Slot) -> None:
        """An episode is over; a process in the middle of something is ended."""
        if slot.process is not None and not slot.process.is_well:
            await self._empty(slot)
        if slot not in self._idle:
            self._idle.append(slot)
            self._free.release()
        if self._folder is not None:
            self._load_ahead()

    async def close(self) -> None:
        """End all processes; idempotent."""
        folder, self._folder = self._folder, None
        self._expected = []
        for slot in self._slots:
            await self._empty(slot)
        if folder is not None:
            folder.cleanup()

    # ------------------------------------------------------------------ slots

    def _choose(self, game: str) -> _Slot:
        """The free slot that costs least: with this game, with none, with one that is wanted late."""

        def cost(slot: _Slot) -> tuple[int, int]:
            if slot.game == game:
                return (0, 0)
            if slot.game is None:
                return (1, 0 if slot.process is not None else 1)
            late = self._expected.index(slot.game) if slot.game in self._expected else len(self._expected)
            return (2 if slot.loading is None or slot.loading.done() else 3, -late)

        return min(self._idle, key=cost)

    def _load_ahead(self) -> None:
        """Let every free process without a game load the next that no other has."""
        ahead = [slot.game for slot in self._idle if slot.game is not None]
        coming = list(self._expected)
        for game in ahead:
            if game in coming:
                coming.remove(game)
        for slot in self._idle:
            if slot.game is None and coming:
                slot.game = coming.pop(0)
                slot.loading = asyncio.create_task(self._load(slot, slot.game))
                # Whoever takes the slot sees the failure; where nobody does, it is no loss.
                slot.loading.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _loaded(self, slot: _Slot, game: str) -> Seen:
        """The first view of a game, loaded ahead or now."""
        loading, ahead = slot.loading, slot.game
        slot.loading, slot.game = None, None
        if loading is not None and ahead == game:
            try:
                return await loading
            except ProcessDied:
                return await self.replace(slot, game)
        if loading is not None and not loading.done():
            loading.cancel()
            await asyncio.wait({loading})
        try:
            return await self._load(slot, game)
        except ProcessDied:
            return await self.replace(slot, game)

    async def _load(self, slot: _Slot, game: str) -> Seen:
        if slot.n_loaded >= self.settings.games_per_process and slot.process is not None:
            await slot.process.end()
        process = await self._started(slot)
        slot.n_loaded += 1
        return await process.load(game, self.settings.timeout_s, expert=self.settings.expert)

    async def _started(self, slot: _Slot) -> GameProcess:
        """The slot's process, a new one where it is not well."""
        if slot.process is not None and slot.process.is_well:
            return slot.process
        if slot.process is not None:
            await slot.process.end()
        if self._folder is None:
            raise EnvError("The pool of game processes is closed.")
        name = f"process-{next(self._numbers)}"
        python, timeout_s = self.settings.python, self.settings.timeout_s
        slot.n_loaded = 0
        slot.process = GameProcess(python, Path(self._folder.name), name, start_timeout_s=timeout_s)
        await slot.process.start()
        return slot.process

    async def _empty(self, slot: _Slot) -> None:
        loading, slot.loading, slot.game = slot.loading, None, None
        if loading is not None and not loading.done():
            loading.cancel()
            await asyncio.wait({loading})
        process, slot.process = slot.process, None
        if process is not None:
            await process.end()


class PooledGame(TextGame):
    """A game that is played in a process of the pool.

    Args:
        pool: Where the process comes from.
        game: Path of ``game.tw-pddl``, or of a bare ``problem.json`` or ``problem.json.xz``.
    """

    def __init__(self, pool: GamePool, game: str) -> None:
        self.pool = pool
        self.game = game
        #: What ALFWorld's expert would do now, where the pool was asked for it.
        self.expert_command: str | None = None
        self._slot: _Slot | None = None
        self._said: list[str] = []

    async def begin(self) -> View:
        self._slot, seen = await self.pool.take(self.game)
        return self._take_in(seen)

    async def do(self, command: str) -> View:
        slot = self._slot
        if slot is None or slot.process is None:
            raise EnvError("A command was given before the game began.")
        timeout_s = self.pool.settings.timeout_s
        try:
            seen = await slot.process.command(command, timeout_s)
        except ProcessDied:
            # Once: a command that kills two processes would kill all of them.
            await self.pool.replace(slot, self.game)
            for earlier in self._said:
                await slot.process.command(earlier, timeout_s)
            seen = await slot.process.command(command, timeout_s)
        self._said.append(command)
        return self._take_in(seen)

    async def close(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            await self.pool.give_back(slot)

    def _take_in(self, seen: Seen) -> View:
        view, self.expert_command = seen
        return view
