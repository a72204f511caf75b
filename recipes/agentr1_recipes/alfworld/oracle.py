"""Plays ALFWorld games without a model: ALFWorld's own expert, or a player who draws commands blindly.

    python -m agentr1_recipes.alfworld.oracle --split valid_unseen --player expert --python ~/alfworld/bin/python

prints how many games of each type were won, and in how many turns. It shows that games work, and what a score means.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from agentr1_core.errors import AgentR1Error
from agentr1_recipes.alfworld.games import SPLIT_FOLDERS, TASK_TYPES, GameFile, find_data, find_games
from agentr1_recipes.alfworld.pool import GamePool, PooledGame, PoolSettings


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one game ended."""

    game: GameFile
    won: bool
    turns: int


async def play_games(
    games: Sequence[GameFile], player: str, *, python: str | None = None, processes: int = 2, max_turns: int = 50
) -> list[Outcome]:
    """Play each game once.

    Args:
        games: The games.
        player: ``expert`` or ``random``.
        python: Interpreter that has ``alfworld``.
        processes: How many are played at once.
        max_turns: Turns after which a game is lost.
    """
    pool = GamePool(PoolSettings(python=python, processes=processes, expert=player == "expert", wait_s=86_400.0))

    async def play(game: GameFile) -> Outcome:
        playing = PooledGame(pool, str(game.path))
        rng = random.Random(f"player/{game.name}")
        try:
            view = await playing.begin()
            turns = 0
            while not view.won and turns < max_turns:
                command = playing.expert_command if player == "expert" else rng.choice(view.commands)
                view = await playing.do(command or "look")
                turns += 1
        finally:
            await playing.close()
        return Outcome(game, view.won, turns)

    try:
        await pool.start()
        pool.expect([str(game.path) for game in games])
        async with asyncio.TaskGroup() as running:
            tasks = [running.create_task(play(game)) for game in games]
    except ExceptionGroup as failed:
        raise failed.exceptions[0] from None
    finally:
        await pool.close()
    return [task.result() for task in tasks]


def table(outcomes: Sequence[Outcome]) -> str:
    """Games, wins and median turns of the wins, by task type."""
    lines = ["| task type | games | won | turns of a win, median |", "| --- | --- | --- | --- |"]
    for task_type in (*TASK_TYPES, "all"):
        mine = [each for each in outcomes if task_type in (each.game.task_type, "all")]
        won = [each.turns for each in mine if each.won]
        if mine:
            turns = f"{statistics.median(won):g}" if won else "-"
            lines.append(f"| `{task_type}` | {len(mine)} | {len(won)} | {turns} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of the games; ALFWORLD_DATA, else the recipe's own")
    parser.add_argument("--split", choices=SPLIT_FOLDERS, default="valid_unseen")
    parser.add_argument("--player", choices=["expert", "random"], default="expert")
    parser.add_argument("--python", help="interpreter that has alfworld; this one when left out")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--size", type=int, help="games at most; all when left out")
    parser.add_argument("--max-turns", type=int, default=50)
    options = parser.parse_args()
    start = time.monotonic()
    try:
        games = find_games(find_data(options.data), options.split)[: options.size]
        outcomes = asyncio.run(
            play_games(
                games,
                options.player,
                python=options.python,
                processes=options.processes,
                max_turns=options.max_turns,
            )
        )
    except AgentR1Error as error:
        sys.exit(str(error))
    print(table(outcomes))
    won = sum(each.won for each in outcomes)
    print(json.dumps({"games": len(games), "won": won, "seconds": round(time.monotonic() - start, 1)}))


if __name__ == "__main__":
    main()
