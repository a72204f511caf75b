"""Finds ALFWorld's games in a folder: the layout that ``alfworld-download`` makes, bare problems, or our own set."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from agentr1_core.errors import DataError

#: The task types, by the names that ALFWorld's folders begin with.
TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
#: The folder of each split; the first that is there counts. A bare archive may have only a part of ``train``.
SPLIT_FOLDERS = {"train": ("train", "valid_train"), "valid_seen": ("valid_seen",), "valid_unseen": ("valid_unseen",)}
#: The games of our own, which ``generate.py`` drew.
OWN_GAMES = Path(__file__).with_name("data")
#: A game in each form that a process can load, the complete one first.
_FILES = ("game.tw-pddl", "problem.json", "problem.json.xz")
#: Parts of folder names of games that ALFWorld leaves out.
_LEFT_OUT = ("movable", "Sliced")


@dataclass(frozen=True, slots=True)
class GameFile:
    """One game on disk."""

    path: Path
    task_type: str
    #: ``<task>-<object>-<movable>-<receptacle>-<scene>/<trial>``.
    name: str


def find_data(data: str | None) -> Path:
    """The folder with the splits.

    Args:
        data: A folder; the one that the environment variable ``ALFWORLD_DATA`` names, else our own set, when ``None``.

    Raises:
        DataError: The folder is not there or holds no split.
    """
    said = data or os.environ.get("ALFWORLD_DATA")
    if said is None:
        return OWN_GAMES
    named = "`recipe.data`" if data else "ALFWORLD_DATA"
    root = Path(said).expanduser()
    for folder in (root, root / "json_2.1.1"):
        if any((folder / name).is_dir() for names in SPLIT_FOLDERS.values() for name in names):
            return folder
    raise DataError(
        f"{named}: '{said}' holds no ALFWorld games: no folder train, valid_train, valid_seen or valid_unseen.",
        "Run `alfworld-download` and name its folder, or leave it out for the games that the recipe brings.",
    )


def find_games(data: Path, split: str) -> list[GameFile]:
    """The games of a split, in the order of their names.

    Raises:
        DataError: The split is not there, or has no game.
    """
    folders = [data / name for name in SPLIT_FOLDERS[split] if (data / name).is_dir()]
    if not folders:
        raise DataError(f"'{data}' has no folder for the split '{split}'.", "Name a folder with all splits.")
    found = []
    for trial in sorted(folders[0].glob("*/*")):
        name = f"{trial.parent.name}/{trial.name}"
        task_type = trial.parent.name.split("-")[0]
        files = [trial / each for each in _FILES if (trial / each).is_file()]
        if files and task_type in TASK_TYPES and not any(part in name for part in _LEFT_OUT):
            found.append(GameFile(files[0], task_type, name))
    if not found:
        raise DataError(
            f"'{folders[0]}' holds no playable game.",
            "It needs game.tw-pddl or problem.json two folders down, as `alfworld-download` makes them.",
        )
    return found


def is_solvable(game: GameFile) -> bool:
    """Whether the game is not marked as one that cannot be solved."""
    if game.path.suffix != ".tw-pddl":
        return True
    return bool(json.loads(game.path.read_text(encoding="utf-8")).get("solvable", False))
