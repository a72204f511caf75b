"""What the model sees of a text game, how its commands are read, and what is rewarded."""

import pytest

from agentr1_core.errors import ConfigError
from agentr1_core.testing.play import play
from agentr1_recipes.textgame.command import read_command
from agentr1_recipes.textgame.env import GameRules, TextGameEnv
from agentr1_recipes.textgame.game import TextGame, View


class Door(TextGame):
    """A door that must be opened."""

    async def begin(self):
        self.closed = 0
        return View("You see a door.\nYour task is to: open it.", ("open door", "look"), "closed")

    async def do(self, command):
        if command == "open door":
            return View("It is open.", (), "open", won=True)
        return View("A door." if command == "look" else "Nothing happens.", ("open door", "look"), "closed")

    async def close(self):
        self.closed += 1


@pytest.mark.parametrize(
    ("said", "command"),
    [
        ("go to desk 1", "go to desk 1"),
        ("<action>Take Mug 1  from desk 1</action>", "take mug 1 from desk 1"),
        ("<think>perhaps <action>look</action></think>I open it.\n<action>open door</action>", "open door"),
        ("<action>look</action> or <action>open door</action>", "open door"),
        ("I will look around.\n\n> look\n", "look"),
        ("Action: look", "look"),
        ("It goes into <action>: <action>open door</action>", "open door"),
        ("<action>look", None),
        ("<think>I never stop", None),
        ("<action></action>", None),
        ("", None),
    ],
)
def test_commands_are_read(said, command):
    assert read_command(said) == command


def shown(rules, said):
    played = play(TextGameEnv(Door(), rules, "open"), {}, said)
    return [[message["content"] for message in step.observation.messages] for step in played.steps], played


def test_the_conversation_is_appended_to():
    rules = GameRules(system_prompt="Play.")
    seen, played = shown(rules, ["look", "<action>dance</action>", "<action>open", "open door"])
    first = "You see a door.\nYour task is to: open it.\nCommands: open door, look"
    assert seen[0] == ["Play.", first]
    assert seen[3] == [
        *["Play.", first, "look", "A door.\nCommands: open door, look"],
        *["<action>dance</action>", "Nothing happens.\nCommands: open door, look"],
        *["<action>open", "Nothing happens.\nCommands: open door, look"],
    ]
    assert [step.continued for step in played.steps] == [False, True, True, True]
    assert [step.info["useful"] for step in played.steps] == [True, False, False, True]
    assert played.counters["commands/missing"] == played.counters["commands/useless"] == 1
    assert (played.counters["games/open"], played.counters["won/open"]) == (1, 1)
    assert {step.observation.anchor for step in played.steps} == {"closed"}


def test_with_a_history_the_prompt_is_written_anew():
    seen, played = shown(GameRules(system_prompt="", history=1, show_commands=False), ["look", "dance", "open door"])
    assert seen[1:] == [
        ["Your task is to: open it.\n> look\nA door."],
        ["Your task is to: open it.\n> dance\nNothing happens."],
    ]
    assert not any(step.continued for step in played.steps)
    seen, _ = shown(GameRules(system_prompt="", history=0), ["look", "open door"])
    assert seen[1] == ["Your task is to: open it.\nA door.\nCommands: open door, look"]


def test_rewards_of_turns_and_of_commands_that_do_nothing_are_off_until_they_are_set():
    _, plain = shown(GameRules(), ["dance", "open door"])
    assert [step.reward for step in plain.steps] == [0.0, 1.0]
    _, shaped = shown(GameRules(reward=10.0, turn_reward=-0.1, invalid_reward=-0.5), ["dance", "look", "open door"])
    assert [step.reward for step in shaped.steps] == pytest.approx([-0.6, -0.1, 9.9])


def test_the_limit_of_turns_truncates():
    _, played = shown(GameRules(max_turns=2), ["look"])
    assert [(step.terminated, step.truncated) for step in played.steps] == [(False, False), (False, True)]
    _, played = shown(GameRules(max_turns=2), ["look", "open door"])
    assert (played.steps[-1].terminated, played.steps[-1].truncated) == (True, False)


def test_rules_out_of_range_are_refused():
    with pytest.raises(ConfigError, match=r"env\.max_turns"):
        GameRules(max_turns=0)
    with pytest.raises(ConfigError, match=r"env\.history"):
        GameRules(history=-1)
