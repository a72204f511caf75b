"""Episodes of multi-hop QA through the real loop: the expert answers all, the random policy nearly nothing."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentr1_core.testing import call, play
from agentr1_core.testing.env_kit import EnvKit
from agentr1_core.tool import ToolBox
from agentr1_core.tool_env import ToolEnv
from agentr1_recipes.multihop.loader import load
from agentr1_recipes.multihop.oracle import expert, random_policy
from agentr1_recipes.multihop.recipe import MultiHop
from agentr1_recipes.multihop.reward import answer_format
from agentr1_recipes.multihop.tools import PassageSearch
from agentr1_tools import qa

FIRST = MultiHop().tasks("eval", 1, 0)[0]


def played(tasks, policy, **settings):
    return [play(ToolEnv(ToolBox([PassageSearch("row", **settings)])), task, policy(task)) for task in tasks]


def mean(reward, trajectories):
    return sum(map(reward, trajectories)) / len(trajectories)


def shown(trajectory):
    """All passages that the search has shown."""
    answers = [message["content"] for step in trajectory.steps for message in step.feedback]
    return [passage for answer in answers for passage in json.loads(answer)["results"]]


class TestEpisodes(EnvKit):
    def make_env(self):
        return ToolEnv([PassageSearch("row")])

    def task(self):
        return dict(FIRST)

    def answers(self):
        return expert(FIRST)


def test_the_expert_answers_everything_and_the_random_policy_nearly_nothing():
    tasks, rng = MultiHop().tasks("eval", 40, 0), random.Random(0)
    best = played(tasks, expert, top_k=1)
    assert mean(qa.qa_em, best) == mean(qa.qa_hotpot_f1, best) == 1.0
    for task, trajectory in zip(tasks, best, strict=True):
        text = {each["title"]: each["text"] for each in task["passages"]}
        assert shown(trajectory) == [f"{title} {text[title]}" for title in task.extra_info["supporting"]]
    assert mean(qa.qa_em, played(tasks, lambda task: random_policy(task, rng))) <= 0.05


def test_an_answer_without_tags_counts_as_a_whole():
    (task,) = MultiHop().tasks("eval", 1, 0)
    answer = task.ground_truth[0]
    bare, wordy = played([task], lambda _: [answer]), played([task], lambda _: [f"It is {answer}"])
    assert mean(qa.qa_em, bare) == 1.0
    assert mean(qa.qa_em, wordy) == 0.0
    assert mean(qa.qa_sub_em, wordy) == 1.0


@pytest.mark.parametrize(
    ("text", "penalty"),
    [
        ("So it is <answer>Isk</answer>", 0.0),
        ("<ANSWER>Isk</ANSWER>.", 0.0),
        ("Isk", -1.0),
        ("<answer> </answer>", -1.0),
        ("<answer>Isk", -1.0),
        ("</answer>Isk<answer>", -1.0),
        ("<answer>Isk</answer><answer>Lode</answer>", -1.0),
    ],
)
def test_an_answer_out_of_form_costs(text, penalty):
    assert mean(answer_format, played([FIRST], lambda _: [text])) == penalty


def test_real_questions(real_data):
    """The expert finds the gold passages of hard questions among ten and is right; a random policy is not."""
    tasks = load(real_data("hotpotqa/hotpot_distractor_100.jsonl.gz", "100 questions"), "eval")
    best, rng = played(tasks, expert), random.Random(0)
    assert mean(qa.qa_em, best) == mean(qa.qa_hotpot_f1, best) == 1.0
    found = [
        sum(any(passage.startswith(title) for passage in shown(trajectory)) for title in task.extra_info["supporting"])
        / len(task.extra_info["supporting"])
        for task, trajectory in zip(tasks, best, strict=True)
    ]
    assert sum(found) / len(found) > 0.98
    assert mean(qa.qa_em, played(tasks, lambda task: random_policy(task, rng))) <= 0.05


def test_what_a_call_looks_like():
    assert expert(FIRST)[0] == call("search", query=FIRST.extra_info["supporting"][0])


TEXT = st.text(max_size=30) | st.lists(st.sampled_from(["the", "a", "Isk", "yes", "no", "isk."]), max_size=5).map(
    " ".join
)


@given(TEXT, TEXT)
def test_laws_of_the_scores(said, gold):
    """F1 is symmetric and within bounds; exact match implies F1 and containment; normalising twice changes nothing."""
    assert qa.normalise(qa.normalise(said)) == qa.normalise(said)
    for score in (qa.f1, qa.hotpot_f1):
        assert score(said, gold) == score(gold, said)
        assert 0.0 <= score(said, gold) <= 1.0
    assert qa.hotpot_f1(said, gold) <= qa.f1(said, gold)
    if qa.exact(said, gold):
        assert qa.contains(said, gold) == 1.0
        assert qa.f1(said, gold) == (1.0 if qa.normalise(gold) else 0.0)
