"""WebShop as an environment, played through the real episode loop."""

import random
import statistics

import pytest

from agentr1_core.context import ContextEnv, KeepLast
from agentr1_core.errors import ConfigError, EnvError
from agentr1_core.mdp import StopReason
from agentr1_core.testing import play
from agentr1_core.testing.env_kit import EnvKit
from agentr1_recipes.webshop.env import WebShopEnv
from agentr1_recipes.webshop.goal import Goal
from agentr1_recipes.webshop.loader import open_catalogue
from agentr1_recipes.webshop.oracle import expert, random_policy
from agentr1_recipes.webshop.recipe import WebShop
from agentr1_recipes.webshop.reward import webshop_success


def expert_for(task):
    goal = Goal.from_row(task["goal"], "the task")
    return expert(goal, open_catalogue(task["catalogue"]).by_asin[goal.asin])


class TestWebShopEnv(EnvKit):
    def make_env(self):
        return WebShopEnv(max_turns=8)

    def task(self):
        return dict(WebShop().tasks("test", 1, 0)[0])

    def answers(self):
        task = self.task()
        return [step.action.text.strip() for step in play(self.make_env(), task, expert_for(task)).steps]

    def answers_into_a_limit(self):
        return ["search[lamp]", "click[next >]", "I do not know."] * 3

    def test_an_invalid_action_costs_a_turn_and_changes_nothing(self):
        played = self.play(["search[lamp]", "click[buy now]", "Let me think."])
        pages = [observation.messages[-1] for observation in played.observations]
        assert pages[1] == pages[2] == pages[3]
        assert [result.reward for result in played.results] == [0.0] * 3
        assert [result.info["valid"] for result in played.results] == [True, False, False]

    def test_the_anchor_is_the_page_and_what_was_chosen(self):
        answers = self.answers()
        once = [observation.anchor for observation in self.play(answers).observations]
        again = [observation.anchor for observation in self.play(["search[oak]", *answers[:-1]]).observations]
        assert once[1:-1] == again[2:]
        assert len(set(once)) == len(once)


@pytest.mark.parametrize("goals", ["human", "synthetic"])
def test_the_expert_buys_what_was_asked_for_and_chance_does_not(goals):
    tasks = WebShop(goals=goals).tasks("test", 20, 0)
    played = [play(WebShopEnv(), task, expert_for(task)) for task in tasks]
    assert [trajectory.ret for trajectory in played] == [1.0] * len(tasks)
    assert [webshop_success(trajectory) for trajectory in played] == [1.0] * len(tasks)
    assert {trajectory.stop_reason for trajectory in played} == {StopReason.TERMINATED}
    rng = random.Random(0)
    by_chance = [play(WebShopEnv(), task, random_policy(rng)) for task in tasks]
    assert statistics.mean(trajectory.ret for trajectory in by_chance) < 0.3
    assert sum(webshop_success(trajectory) for trajectory in by_chance) <= 1


def test_the_context_may_keep_the_last_page_alone():
    (task,) = WebShop().tasks("test", 1, 0)
    played = play(ContextEnv(WebShopEnv(), KeepLast(1)), task, expert_for(task))
    assert played.ret == 1.0
    assert [len(step.observation.messages) for step in played.steps] == [2] + [4] * (len(played.steps) - 1)


def test_tasks_repeat_and_held_out_tasks_do_not_depend_on_the_seed():
    recipe = WebShop()
    assert recipe.tasks("train", 5, 1) == recipe.tasks("train", 5, 1) != recipe.tasks("train", 5, 2)
    assert recipe.tasks("eval", 5, 1) == recipe.tasks("eval", 5, 2)
    held_out = {task["goal"]["instruction"] for task in recipe.tasks("eval", 999, 0)}
    assert not held_out & {task["goal"]["instruction"] for task in recipe.tasks("train", 999, 0)}


def test_bad_settings_and_rows_are_told():
    with pytest.raises(ConfigError, match=r"`recipe.goals` is 'odd'"):
        WebShop(goals="odd")
    with pytest.raises(ConfigError, match="`max_turns` of WebShop is 0"):
        WebShopEnv(max_turns=0)
    with pytest.raises(EnvError, match="column 'goal' is no goal of WebShop"):
        play(WebShopEnv(), {"goal": {"asin": "A1"}}, ["search[x]"])
    (task,) = WebShop().tasks("test", 1, 0)
    with pytest.raises(EnvError, match="product NONE is not in the catalogue"):
        play(WebShopEnv(), {**task, "goal": {**task["goal"], "asin": "NONE"}}, ["search[x]"])
