"""ALFWorld's games, our own ones and real ones, as their players see them."""

import asyncio
import json
import sys

import pytest

from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.errors import DataError, PluginError
from agentr1_core.task import Task
from agentr1_core.testing.play import play
from agentr1_recipes.alfworld.build import build_games
from agentr1_recipes.alfworld.env import AlfworldGames
from agentr1_recipes.alfworld.games import OWN_GAMES, find_data, find_games
from agentr1_recipes.alfworld.generate import draw, write
from agentr1_recipes.alfworld.oracle import play_games, table
from agentr1_recipes.alfworld.recipe import Alfworld


def test_the_expert_wins_our_own_games_and_blind_commands_do_not(python, own_games):
    won = asyncio.run(play_games(own_games, "expert", python=python))
    assert [each.won for each in won] == [True] * 6, table(won)
    lost = asyncio.run(play_games(own_games, "random", python=python, max_turns=25))
    assert sum(each.won for each in lost) == 0, table(lost)


def test_the_expert_wins_real_games_of_all_splits(python, real_data, capsys):
    games = [
        game
        for split in ("train", "valid_seen", "valid_unseen")
        for game in find_games(find_data(str(real_data)), split)
    ]
    assert len(games) == 9
    outcomes = asyncio.run(play_games(games, "expert", python=python))
    with capsys.disabled():
        print(f"\nreal ALFWorld games from {real_data.name}:\n{table(outcomes)}")
    assert all(each.won for each in outcomes), table(outcomes)


def test_an_episode_as_a_model_sees_it(python):
    task = next(
        each for each in Alfworld().tasks("valid_unseen", 12, 0) if each["task_type"] == "pick_and_place_simple"
    )
    source = AlfworldGames(python=python, processes=1, max_turns=4)
    trajectory = play(
        AgentEnvLoop(source.make, source=source),
        task,
        ["<action>look</action>", "fly away", "<action>look", "inventory"],
    )
    first = trajectory.steps[0].observation.messages
    lines = first[1]["content"].splitlines()
    assert first[0]["role"] == "system"
    assert lines[0].startswith("You are in the middle of a room. Looking quickly around you, you see")
    assert lines[1].startswith("Your task is to: put a ")
    assert lines[2].startswith("Commands: ")
    assert "look, " in lines[2] or lines[2].endswith("look")
    assert "help" not in lines[2]
    answers = [step.feedback[0]["content"].splitlines()[0] for step in trajectory.steps]
    assert answers[1:] == ["Nothing happens.", "Nothing happens.", "You are not carrying anything."]
    assert [step.info["useful"] for step in trajectory.steps] == [True, False, False, True]
    assert trajectory.steps[-1].truncated
    assert trajectory.counters["games/pick_and_place_simple"] == 1
    assert trajectory.counters["won/pick_and_place_simple"] == 0
    # Nothing changed between the last two, so they show the same state, which is not that after the first look.
    anchors = [step.observation.anchor for step in trajectory.steps]
    assert anchors[2] == anchors[3]


def test_bare_problems_are_made_playable(python, tmp_path, own_games):
    drawn = json.loads(json.dumps(draw("train", "pick_and_place_simple", 1, python=python)[0]))
    first = write(tmp_path, "train", drawn)
    assert build_games(tmp_path, python=python) == 1
    complete = find_games(tmp_path, "train")[0]
    assert complete.path.name == "game.tw-pddl"
    outcomes = asyncio.run(play_games([complete], "random", python=python, max_turns=2))
    assert outcomes[0].turns == 2
    # A game of its own that an older ALFWorld made is wrapped anew; its goal comes from its grammar.
    first.path.unlink()
    game = json.loads(complete.path.read_text())
    assert game["grammar"].count(f"Your task is to: {drawn['goal']}.") == 1
    complete.path.write_text(json.dumps({**game, "pddl_domain": "old"}))
    assert build_games(tmp_path, python=python, again=True) == 1
    assert json.loads(complete.path.read_text()) == game


def test_games_are_drawn_alike_everywhere(python, own_games, tmp_path):
    known = own_games[0]
    number = int(known.name[-4:])
    again = write(tmp_path, "train", draw("valid_unseen", known.task_type, 1, first=number, python=python)[0])
    assert again.name == known.name
    assert again.path.read_bytes() == known.path.read_bytes()


def test_nothing_to_build_and_no_alfworld_are_told(python, tmp_path):
    with pytest.raises(DataError, match=r"no problem\.json"):
        build_games(tmp_path, python=python)
    if python is not None:
        with pytest.raises(PluginError, match=r"(?s)No module named 'alfworld'.*pip install"):
            build_games(OWN_GAMES, python=sys.executable)


def test_a_row_without_a_game_is_refused(python):
    with pytest.raises(DataError, match="column 'game' is missing"):
        AlfworldGames(python=python).make(Task({}, "row 3"))
