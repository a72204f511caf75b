"""Episodes of GSM8K through the real loop: the expert solves nearly all, the random policy nearly nothing."""

import random

from agentr1_core.task import Task
from agentr1_core.testing import call, play
from agentr1_core.testing.env_kit import EnvKit
from agentr1_core.tool_env import ToolEnv
from agentr1_recipes.gsm8k.loader import load
from agentr1_recipes.gsm8k.oracle import expert, random_policy
from agentr1_recipes.gsm8k.recipe import GSM8K
from agentr1_recipes.gsm8k.reward import gsm8k_strict
from agentr1_tools.calculator import Calculator

FIRST = GSM8K().tasks("eval", 1, 0)[0]


def solved(tasks, policy):
    """The share of the tasks that a policy solves."""
    played = [play(ToolEnv([Calculator()]), task, policy(task)) for task in tasks]
    return sum(map(gsm8k_strict, played)) / len(played)


class TestEpisodes(EnvKit):
    def make_env(self):
        return ToolEnv([Calculator()])

    def task(self):
        return dict(FIRST)

    def answers(self):
        return expert(FIRST)


def test_the_expert_solves_everything_and_the_random_policy_nearly_nothing():
    recipe, rng = GSM8K(), random.Random(0)
    for split, n in (("eval", 40), ("hard", 20)):
        tasks = recipe.tasks(split, n, 0)
        assert solved(tasks, expert) == 1.0
        assert solved(tasks, lambda task: random_policy(rng)) <= 0.05


def test_what_the_agent_sees():
    trajectory = play(ToolEnv([Calculator()]), FIRST, expert(FIRST))
    first, *_, last = trajectory.steps
    assert "calculator" in first.observation.tools[0]["name"]
    assert [message["role"] for message in first.observation.messages] == ["system", "user"]
    assert first.feedback[0]["content"] == FIRST.extra_info["answer"].partition(">>")[0].rpartition("=")[2]
    assert last.action.text.startswith("#### ")
    assert last.terminated


def test_public_rows(real_data):
    """The expert follows the worked solutions through the calculator, on every twentieth test row."""
    tasks = load(real_data("gsm8k", "66 of the test rows"), "eval")[::20]
    assert len(tasks) == 66
    rng = random.Random(0)
    assert solved(tasks, expert) == 1.0
    assert solved(tasks, lambda task: random_policy(rng)) <= 0.05


def test_the_expert_is_one_call_for_each_calculation():
    task = Task({"extra_info": {"answer": "5*6 = <<5*6=30>>30\n30-4 = <<30-4=26>>26\n#### 26"}})
    assert expert(task) == [
        call("calculator", expression="5*6"),
        call("calculator", expression="30-4"),
        "#### 26",
    ]
