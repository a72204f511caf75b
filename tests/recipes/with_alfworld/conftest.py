"""Real ALFWorld games need an interpreter that has ``alfworld``: ``make test-alfworld`` makes one and names it."""

import importlib.util
import os
import tarfile
from pathlib import Path

import pytest

from agentr1_recipes.alfworld.games import OWN_GAMES, TASK_TYPES, find_games


@pytest.fixture(scope="session")
def python():
    """The interpreter with ALFWorld; ``None`` for this one."""
    named = os.environ.get("AGENTR1_ALFWORLD_PYTHON")
    if named is None and importlib.util.find_spec("alfworld") is None:
        pytest.skip("no ALFWorld here: `make test-alfworld`")
    return None if named is None else str(Path(named).absolute())


@pytest.fixture(scope="session")
def own_games():
    """The recipe's own unseen games: one of each type."""
    games = find_games(OWN_GAMES, "valid_unseen")
    return [next(game for game in games if game.task_type == each) for each in TASK_TYPES]


@pytest.fixture(scope="session")
def real_data(tmp_path_factory):
    """A few games of ALFWorld's own data: three of each split, of different types, as bare problems."""
    data = os.environ.get("AGENTR1_DATA")
    archive = None if data is None else Path(data) / "alfworld" / "alfworld_474_games_slim.tar.xz"
    if archive is None or not archive.is_file():
        pytest.skip("AGENTR1_DATA names no folder with ALFWorld's games")
    folder = tmp_path_factory.mktemp("alfworld")
    wanted = ("pick_clean_then_place_in_recep", "look_at_obj_in_light", "pick_heat_then_place_in_recep")
    with tarfile.open(archive) as source:
        taken = {}
        for member in source:
            if member.name.endswith("problem.json"):
                split, game = member.name.split("/")[1:3]
                key = (split, game.split("-")[0])
                if key[1] in wanted:
                    taken.setdefault(key, os.path.dirname(member.name))
        chosen = set(taken.values())
    with tarfile.open(archive) as source:
        members = [each for each in source if each.isfile() and os.path.dirname(each.name) in chosen]
        source.extractall(folder, members, filter="data")
    return folder
