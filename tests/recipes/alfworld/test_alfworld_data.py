"""Which games the ALFWorld recipe finds and in what order it gives them; nothing here needs ALFWorld itself."""

import importlib.util
import json
from collections import Counter

import pytest

from agentr1_core.errors import ConfigError, DataError, PluginError
from agentr1_recipes.alfworld.demonstrations import read_demonstrations
from agentr1_recipes.alfworld.env import AlfworldGames
from agentr1_recipes.alfworld.games import OWN_GAMES, TASK_TYPES, find_data, find_games
from agentr1_recipes.alfworld.recipe import Alfworld


def add_game(root, split, name, trial="trial_1", *, file="game.tw-pddl", **content):
    folder = root / split / name / trial
    folder.mkdir(parents=True)
    (folder / file).write_text(json.dumps(content))


@pytest.fixture
def downloaded(tmp_path):
    """The layout that alfworld-download makes, with all that ALFWorld leaves out."""
    root = tmp_path / "json_2.1.1"
    for number in range(4):
        add_game(root, "train", f"pick_and_place_simple-Mug-None-Desk-30{number}", solvable=True)
    add_game(root, "train", "pick_and_place_simple-Pen-None-Desk-309", solvable=False)
    add_game(root, "train", "pick_and_place_with_movable_recep-Pen-Mug-Desk-301", solvable=True)
    add_game(root, "train", "pick_and_place_simple-AppleSliced-None-Desk-301", solvable=True)
    (root / "train" / "pick_cool_then_place_in_recep-Mug-None-Desk-1" / "trial_1").mkdir(parents=True)
    add_game(root, "valid_seen", "look_at_obj_in_light-Book-None-DeskLamp-301", solvable=True)
    add_game(root, "valid_unseen", "look_at_obj_in_light-Pen-None-DeskLamp-308", file="problem.json", goal="look")
    return tmp_path


def test_a_download_is_read_as_alfworld_reads_it(downloaded, monkeypatch):
    tasks = Alfworld(str(downloaded)).tasks("train", 100, seed=0)
    assert {task["id"].split("-")[1] for task in tasks} == {"Mug"}
    assert len(tasks) == 4
    monkeypatch.setenv("ALFWORLD_DATA", str(downloaded))
    recipe = Alfworld(eval_split="valid_unseen")
    (held,) = recipe.tasks("eval", 10, seed=5)
    assert held["game"].endswith("problem.json")  # a bare problem is played as it is
    assert held["task_type"] == "look_at_obj_in_light"
    assert [task["id"] for task in recipe.tasks("valid_seen", 10, 0)] == [
        "look_at_obj_in_light-Book-None-DeskLamp-301/trial_1"
    ]


def test_training_games_come_in_the_seeds_order_and_held_out_ones_always_alike(monkeypatch):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    recipe = Alfworld()
    assert recipe.data == OWN_GAMES
    names = [[task["id"] for task in recipe.tasks("train", 24, seed)] for seed in (0, 0, 1)]
    assert names[0] == names[1] != names[2]
    assert sorted(names[0]) == sorted(names[2])
    assert recipe.tasks("eval", 3, 0) == recipe.tasks("valid_seen", 3, 9)
    assert len(recipe.tasks("train", 5, 0)) == 5


def test_our_own_games_have_every_type_in_every_split_and_other_rooms_in_the_unseen_one():
    counts = {split: Counter(game.task_type for game in find_games(OWN_GAMES, split)) for split in Alfworld.splits[2:]}
    assert counts == {"valid_seen": dict.fromkeys(TASK_TYPES, 1), "valid_unseen": dict.fromkeys(TASK_TYPES, 1)}
    scenes = {
        split: {game.name.split("/")[0].split("-")[-1] for game in find_games(OWN_GAMES, split)}
        for split in ("train", "valid_seen", "valid_unseen")
    }
    assert Counter(game.task_type for game in find_games(OWN_GAMES, "train")) == dict.fromkeys(TASK_TYPES, 4)
    assert not scenes["valid_unseen"] & (scenes["train"] | scenes["valid_seen"])


def test_task_types_may_be_chosen():
    tasks = Alfworld(str(OWN_GAMES), task_types=["pick_two_obj_and_place"]).tasks("train", 100, 0)
    assert {task["task_type"] for task in tasks} == {"pick_two_obj_and_place"}
    with pytest.raises(ConfigError, match="no type 'pick_three'"):
        Alfworld(task_types=["pick_three"])
    with pytest.raises(ConfigError, match="no split 'test'"):
        Alfworld(eval_split="test")


def test_missing_data_is_told(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"(?s)`recipe\.data`.*holds no ALFWorld games.*alfworld-download"):
        Alfworld(str(tmp_path))
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DataError, match="ALFWORLD_DATA"):
        find_data(None)
    (tmp_path / "train" / "game").mkdir(parents=True)
    with pytest.raises(DataError, match="no playable game"):
        find_games(find_data(str(tmp_path)), "train")
    with pytest.raises(DataError, match="no folder for the split 'valid_seen'"):
        Alfworld(str(tmp_path)).tasks("eval", 1, 0)


def test_without_alfworld_the_mend_is_told_before_anything_is_loaded(tmp_path):
    mend = r"(?s)pip install 'agentr1-recipes\[alfworld\]', or name an interpreter that has it: `env\.python`"
    with pytest.raises(PluginError, match=mend):
        AlfworldGames(python=str(tmp_path / "python"))
    if importlib.util.find_spec("alfworld") is None:
        with pytest.raises(PluginError, match=mend):
            AlfworldGames()
    with pytest.raises(ConfigError, match="processes 0"):
        AlfworldGames(processes=0)


def test_demonstrations_are_commands_that_were_listed():
    rows = read_demonstrations(200, seed=0)
    assert rows == read_demonstrations(200, seed=0) != read_demonstrations(200, seed=1)
    for row in rows:
        shown, said = row["prompt"][0]["content"], row["completion"][0]["content"]
        assert "Your task is to: " in shown
        assert said in shown.rpartition("Commands: ")[2].split(", ")
