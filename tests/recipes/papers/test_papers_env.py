"""Paper search as an environment, played through the real episode loop."""

import random
import statistics

import pytest

from agentr1_core.errors import ConfigError, EnvError
from agentr1_core.mdp import StopReason
from agentr1_core.testing import call, play
from agentr1_core.testing.env_kit import EnvKit
from agentr1_recipes.papers.env import PaperSearchEnv
from agentr1_recipes.papers.loader import open_corpus
from agentr1_recipes.papers.oracle import STOP, expert, random_policy, search_then_expand, unexpanded
from agentr1_recipes.papers.recipe import Papers
from agentr1_recipes.papers.reward import paper_recall


@pytest.fixture(scope="module")
def task():
    return dict(Papers().tasks("test", 1, 0)[0])


def shown(observation):
    return observation.messages[-1]["content"]


class TestPaperSearchEnv(EnvKit):
    def make_env(self):
        return PaperSearchEnv(max_steps=4, pool_size=8, search_size=5)

    def task(self):
        return dict(Papers().tasks("test", 1, 0)[0])

    def answers(self):
        played = play(self.make_env(), self.task(), search_then_expand)
        return [step.action.text.strip() for step in played.steps]

    def answers_into_a_limit(self):
        return [call("search", query=word) for word in ("heat", "sleep", "noise", "light")]

    def test_the_observation_is_rebuilt_every_step(self):
        first, second, third = self.play([call("search", query="heat"), call("search", query="dogs")]).observations
        assert [len(each.messages) for each in (first, second, third)] == [2, 2, 2]
        assert "Done:" not in shown(first)
        assert "Done:\nsearch heat: 5 new\n" in shown(second)
        assert "Done:\nsearch heat: 5 new\nsearch dogs: 5 new\n" in shown(third)
        assert len(unexpanded(shown(third))) == 8  # of ten

    def test_calls_of_one_step_are_taken_in_one_after_the_other(self):
        first = self.play([call("search", query="heat")])
        one, two, three = unexpanded(shown(first.observations[1]))[:3]
        calls = "\n".join(call("expand", paper_id=name) for name in (one, two, one, "p99999"))
        played = self.play([call("search", query="heat"), calls, call("expand", paper_id=two)])
        history = shown(played.observations[2]).split("\n\n")[1].splitlines()
        assert [line.partition(": ")[0] for line in history] == [
            *("Done:", "search heat", f"expand {one}", f"expand {two}", f"expand {one}", "expand p99999")
        ]
        assert history[-2].endswith("expanded before")
        assert history[-1].endswith("not found before")
        assert played.results[1].reward <= 2 * (3 - 0.05) - 2 * 0.5
        assert played.results[2].reward == -0.5
        assert three in unexpanded(shown(played.observations[3]))

    @pytest.mark.parametrize(
        ("said", "reward"),
        [
            (call("search", query="  HEAT "), -0.5),  # repeated
            (call("expand", paper_id="p99999"), -0.5),
            (call("expand", paper_id=7), -0.5),
            (call("cite", paper_id="p1"), -0.5),
            ('<tool_call>\n{"name": ', -0.5),
            (call("search", query="zzz"), 0.0),  # finds nothing
        ],
    )
    def test_calls_that_find_nothing(self, said, reward):
        played = self.play([call("search", query="heat"), said])
        assert played.results[-1].reward == reward

    def test_more_calls_than_allowed_are_left_out(self):
        calls = "\n".join(
            call("search", query=word) for word in ("heat", "sleep", "noise", "light", "growth", "memory")
        )
        played = self.play([calls])
        assert "search growth: 5 new\nsearch memory: left out" in shown(played.observations[1])

    def test_an_answer_without_a_call_ends_the_episode(self):
        played = self.play([call("search", query="heat"), "That is all."])
        assert played.results[-1].terminated
        assert played.results[-1].reward == 0


def test_players_without_a_model_score_as_they_should():
    corpus = open_corpus(None)
    tasks = Papers().tasks("test", 16, 0)
    rng = random.Random(0)
    players = {
        "expert": lambda task: expert(corpus, task["answers"]),
        "careful": lambda task: search_then_expand,
        "random": lambda task: random_policy(rng),
    }
    played = {name: [play(PaperSearchEnv(), task, make(task)) for task in tasks] for name, make in players.items()}
    mean = {name: statistics.mean(each.ret for each in found) for name, found in played.items()}
    recall = {name: statistics.mean(paper_recall(each) for each in found) for name, found in played.items()}
    assert recall["expert"] == recall["careful"] == 1.0
    assert mean["expert"] >= mean["careful"] > 5 > 2 > mean["random"]
    assert recall["random"] < 0.8
    assert {each.stop_reason for each in played["careful"]} == {StopReason.TERMINATED}
    last = played["careful"][0].steps[-1].info
    assert last["success"]
    assert last["precision"] == pytest.approx(9 / last["found"])
    assert 0 < last["recall@20"] <= last["recall@50"] <= last["recall@100"] == 1.0


def test_hidden_papers_do_not_exist(task):
    survey = next(name for name in task["answers"] if "survey" in open_corpus(None).by_id[name].title)
    env = PaperSearchEnv()
    played = play(env, {**task, "hidden": [survey]}, search_then_expand)
    assert all(survey not in unexpanded(shown(step.observation)) for step in played.steps)
    assert paper_recall(played) < 1


class Backwards:
    """A selector that likes the last papers best."""

    def __init__(self, corpus):
        self._n = len(corpus)

    def score(self, question, paper):
        return int(paper.id[1:]) / self._n


def test_a_selector_of_ones_own_ranks_and_judges(task, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "own_selector", sys.modules[Backwards.__module__])
    env = PaperSearchEnv(selector="own_selector:Backwards", judge="selector")
    played = play(env, {"question": task["question"]}, [call("search", query="heat"), STOP])
    names = unexpanded(shown(played.steps[1].observation))
    assert names == sorted(names, key=lambda name: -int(name[1:]))
    assert played.steps[0].reward in (-0.1, 0.9, 1.9, 2.9)
    assert "recall" not in played.steps[-1].info
    assert paper_recall(played) is None


def test_bad_settings_and_rows_are_told(task):
    with pytest.raises(ConfigError, match=r"`recipe.questions` is 'odd'"):
        Papers(questions="odd")
    with pytest.raises(ConfigError, match="`max_parallel` of paper search is 0"):
        PaperSearchEnv(max_parallel=0)
    with pytest.raises(ConfigError, match="`pool_size` of paper search is 1"):
        PaperSearchEnv(pool_size=1)
    with pytest.raises(EnvError, match="`selector` of paper search is 'nowhere:Thing'"):
        play(PaperSearchEnv(selector="nowhere:Thing"), task, [STOP])
    with pytest.raises(EnvError, match="'json:dumps' has no method `score`"):
        play(PaperSearchEnv(judge="json:dumps"), task, [STOP])
    with pytest.raises(EnvError, match="`judge: gold` needs the column 'answers'"):
        play(PaperSearchEnv(), {"question": "What?"}, [STOP])
    with pytest.raises(EnvError, match="column 'question' is missing or empty"):
        play(PaperSearchEnv(), {"answers": ["p1"]}, [STOP])


def test_tasks_repeat_and_splits_do_not_overlap():
    recipe = Papers()
    assert recipe.tasks("train", 5, 1) == recipe.tasks("train", 5, 1) != recipe.tasks("train", 5, 2)
    names = {split: {task["question"] for task in recipe.tasks(split, 999, 0)} for split in recipe.splits}
    assert [len(names[split]) for split in recipe.splits] == [64, 16, 16]
    assert len(set.union(*names.values())) == 96
