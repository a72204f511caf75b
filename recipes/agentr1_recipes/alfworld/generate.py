"""Makes games of ALFWorld's kind without the simulator; the recipe's own set in ``data/`` was made by this command.

    python -m agentr1_recipes.alfworld.generate games --train 6 --seen 2 --unseen 2 --python ~/alfworld/bin/python

Each game is drawn from its split, task type and number alone, so everybody gets the same. Games that ALFWorld's
own expert does not win in 50 turns are left out; of the type pick_two_obj_and_place those are most.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentr1_core.errors import AgentR1Error, DataError, PluginError
from agentr1_recipes.alfworld.env import check_interpreter
from agentr1_recipes.alfworld.games import TASK_TYPES, GameFile
from agentr1_recipes.alfworld.oracle import play_games
from agentr1_recipes.alfworld.process import INSTALL

_DRAW = Path(__file__).with_name("draw_games.py")
#: Games of one type that may be drawn and left out, beside the wanted ones.
_MOST_DRAWN = 200
#: Seconds for drawing some games.
_DEADLINE_S = 300.0


def draw(
    split: str, task_type: str, games: int, *, first: int = 0, python: str | None = None
) -> list[Mapping[str, Any]]:
    """Games with ``name``, ``goal``, ``pddl_problem``, ``task_type`` and ``pddl_params``, not yet proved solvable.

    Raises:
        PluginError: The interpreter has no ALFWorld.
    """
    check_interpreter(python)
    command = [python or sys.executable, "-I", str(_DRAW), split, task_type, "--first", str(first)]
    done = subprocess.run(
        [*command, "--games", str(games)], capture_output=True, text=True, timeout=_DEADLINE_S, check=False
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise PluginError(f"Games cannot be drawn with '{command[0]}': {last}", INSTALL)
    return [json.loads(line) for line in done.stdout.splitlines()]


def write(folder: Path, split: str, game: Mapping[str, Any]) -> GameFile:
    """Write a game to ``folder/split/name/problem.json.xz``; the same game always as the same bytes."""
    trial = folder / split / game["name"]
    trial.mkdir(parents=True, exist_ok=True)
    path = trial / "problem.json.xz"
    kept = {key: value for key, value in game.items() if key != "name"} | {"solvable": True}
    path.write_bytes(lzma.compress(json.dumps(kept).encode(), preset=9 | lzma.PRESET_EXTREME))
    return GameFile(path, game["name"].split("-")[0], game["name"])


def make_set(folder: Path, sizes: Mapping[str, int], *, python: str | None = None) -> dict[str, int]:
    """Write so many solvable games of each task type for each split; how many were drawn and left out, by split."""
    left_out = {}
    for split, wanted in sizes.items():
        left_out[split] = 0
        for task_type in TASK_TYPES:
            kept: Sequence[GameFile] = ()
            first = 0
            while len(kept) < wanted:
                if first >= _MOST_DRAWN + wanted:
                    raise DataError(
                        f"Of {first} games of type '{task_type}' ALFWorld's expert won {len(kept)}.",
                        "Ask for fewer games.",
                    )
                n_missing = wanted - len(kept)
                drawn = [
                    write(folder, split, game) for game in draw(split, task_type, n_missing, first=first, python=python)
                ]
                first += n_missing
                outcomes = asyncio.run(play_games(drawn, "expert", python=python))
                for lost in (each.game for each in outcomes if not each.won):
                    _remove(lost)
                    left_out[split] += 1
                kept = [*kept, *(each.game for each in outcomes if each.won)]
    return left_out


def _remove(game: GameFile) -> None:
    game.path.unlink()
    game.path.parent.rmdir()
    if not any(game.path.parent.parent.iterdir()):
        game.path.parent.parent.rmdir()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--train", type=int, default=6, help="games of each task type")
    parser.add_argument("--seen", type=int, default=2, help="the same for valid_seen")
    parser.add_argument("--unseen", type=int, default=2, help="the same for valid_unseen")
    parser.add_argument("--python", help="interpreter that has alfworld; this one when left out")
    options = parser.parse_args()
    sizes = {"train": options.train, "valid_seen": options.seen, "valid_unseen": options.unseen}
    try:
        left_out = make_set(options.folder, sizes, python=options.python)
    except AgentR1Error as error:
        sys.exit(str(error))
    print(json.dumps({"games": {split: size * len(TASK_TYPES) for split, size in sizes.items()}, "left_out": left_out}))


if __name__ == "__main__":
    main()
