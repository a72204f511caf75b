"""The QA rewards, number by number, against the official scripts' own rules."""

import re
import string
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentr1_core.errors import RewardError
from agentr1_core.plugins import PluginManager
from agentr1_tools import qa


class Said:
    """A trajectory whose last message is the text."""

    def __init__(self, text, **row):
        action = type("Action", (), {"message": {"role": "assistant", "content": text}, "text": text})
        self.steps = (type("Step", (), {"action": action}),)
        self.task = row


@pytest.mark.parametrize(
    ("said", "gold", "em", "f1", "hotpot", "sub"),
    [
        ("The Eiffel Tower!", "eiffel tower", 1, 1, 1, 1),
        ("in the city of Paris", "Paris", 0, 0.4, 0.4, 1),
        ("Barack Obama", "Obama, Barack", 0, 1, 1, 0),
        ("yes", "Yes.", 1, 1, 1, 1),
        ("yes it is", "yes", 0, 0.5, 0, 1),
        ("no", "yes", 0, 0, 0, 0),
        ("Obama", "no", 0, 0, 0, 0),
        ("a b b c", "b b d", 0, 2 * (2 / 3) * (2 / 3) / (4 / 3), 2 / 3, 0),
        ("", "Paris", 0, 0, 0, 0),
    ],
)
def test_worked_examples(said, gold, em, f1, hotpot, sub):
    row = {"answer": gold}
    assert qa.qa_em(Said(said, **row)) == em
    assert qa.qa_f1(Said(said, **row)) == pytest.approx(f1)
    assert qa.qa_hotpot_f1(Said(said, **row)) == pytest.approx(hotpot)
    assert qa.qa_sub_em(Said(said, **row)) == sub


def official_normalize_answer(s):
    """The four steps of SQuAD's and HotpotQA's script."""
    lowered = s.lower()
    without_punctuation = "".join(ch for ch in lowered if ch not in set(string.punctuation))
    without_articles = re.sub(r"\b(a|an|the)\b", " ", without_punctuation)
    return " ".join(without_articles.split())


def official_f1(prediction, ground_truth, hotpot):
    prediction, ground_truth = official_normalize_answer(prediction), official_normalize_answer(ground_truth)
    if hotpot and prediction in ["yes", "no", "noanswer"] and prediction != ground_truth:
        return 0
    if hotpot and ground_truth in ["yes", "no", "noanswer"] and prediction != ground_truth:
        return 0
    prediction_tokens, ground_truth_tokens = prediction.split(), ground_truth.split()
    num_same = sum((Counter(prediction_tokens) & Counter(ground_truth_tokens)).values())
    if num_same == 0:
        return 0
    precision = 1.0 * num_same / len(prediction_tokens)
    recall = 1.0 * num_same / len(ground_truth_tokens)
    return (2 * precision * recall) / (precision + recall)


WORDS = st.lists(st.sampled_from(["a", "the", "Yes", "no", "Paris", "of", "u.s.", "x-y", "noanswer", "É"]), max_size=6)


@given(WORDS, WORDS)
def test_they_equal_the_official_scripts(said, gold):
    said, gold = " ".join(said), " ".join(gold)
    assert qa.f1(said, gold) == official_f1(said, gold, hotpot=False)
    assert qa.hotpot_f1(said, gold) == official_f1(said, gold, hotpot=True)
    assert qa.exact(said, gold) == (official_normalize_answer(said) == official_normalize_answer(gold))


def test_the_best_of_several_gold_answers_counts():
    assert qa.qa_f1(Said("New York City", reward_model={"ground_truth": {"target": ["NYC", "New York"]}})) == 0.8


def test_the_last_answer_tag_counts():
    text = "<answer>London</answer> no, wait: <answer> Paris </answer> I am sure."
    assert qa.qa_em(Said(text, answer="paris")) == 1
    assert qa.qa_em(Said(text, answer="london")) == 0
    assert qa.qa_em(Said("I close with <answer>. So: <answer>Paris</answer>", answer="paris")) == 1


@pytest.mark.parametrize("row", [{}, {"answer": None}, {"answer": []}, {"reward_model": {"ground_truth": {}}}])
def test_a_row_without_a_truth_is_an_error(row):
    with pytest.raises(RewardError, match="'qa_em' needs a ground truth"):
        qa.qa_em(Said("Paris", **row))


def test_the_rewards_are_known_by_name():
    plugins = PluginManager.discover()
    for name in ("qa_em", "qa_f1", "qa_hotpot_f1", "qa_sub_em"):
        assert plugins.get("reward", name) is getattr(qa, name)
