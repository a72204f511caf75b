"""The strict and the flexible reward, example by example and against a second writing of verl's rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentr1_core.errors import RewardError
from agentr1_recipes.gsm8k.reward import flexible_answer, gsm8k_flexible, gsm8k_strict, strict_answer


class Said:
    """A trajectory whose last message is the text."""

    def __init__(self, text, **row):
        action = type("Action", (), {"message": {"role": "assistant", "content": text}, "text": text})
        self.steps = (type("Step", (), {"action": action}),)
        self.task = row


@pytest.mark.parametrize(
    ("text", "strict", "flexible"),
    [
        ("She has 5. #### 72", "72", "72"),
        ("#### 1,048 eggs", "1048", "1,048"),
        ("#### 7 or rather #### 8", "8", "8"),
        ("#### -3.5", "-3.5", "-3.5"),
        ("It is 72", None, "72"),
        ("It is 72.", None, "72."),
        ("####72", None, "72"),
        ("#### $72", None, "72"),
        ("nothing . at all .", None, None),
        ("", None, None),
        ("#### 72" + "x" * 293, "72", "72"),
        ("#### 72" + "x" * 300, None, None),
    ],
)
def test_examples(text, strict, flexible):
    assert (strict_answer(text), flexible_answer(text)) == (strict, flexible)


def test_scores():
    row = {"reward_model": {"style": "rule", "ground_truth": "72"}}
    assert (gsm8k_strict(Said("#### 72", **row)), gsm8k_flexible(Said("#### 72", **row))) == (1.0, 1.0)
    assert (gsm8k_strict(Said("so 72", **row)), gsm8k_flexible(Said("so 72", **row))) == (0.0, 1.0)
    assert (gsm8k_strict(Said("#### 72.0", **row)), gsm8k_flexible(Said("#### 72.0", **row))) == (0.0, 0.0)
    with pytest.raises(RewardError, match="'gsm8k_strict' needs a ground truth"):
        gsm8k_strict(Said("#### 72"))


def second_writing(text, method):
    """verl's rules, character by character and without regular expressions."""
    text = text[-300:]
    runs, start = [], None  # runs of digits, dots and commas with the sign before them
    for at, character in enumerate([*text, " "]):
        if character in "0123456789.,":
            start = at if start is None else start
        elif start is not None:
            signed = start > 0 and text[start - 1] == "-"
            runs.append((start - signed, text[start - signed : at]))
            start = None
    if method == "flexible":
        runs = [run for _, run in runs if run != "."]
        return runs[-1] if runs else None
    runs = [run for at, run in runs if text[max(at - 5, 0) : at] == "#### "]
    return runs[-1].replace(",", "") if runs else None


@given(
    st.lists(st.sampled_from(["#### ", "####", "#", " ", "-", ".", ",", "7", "72", "1,0", "x", "$", "\n"]), max_size=9)
)
def test_they_equal_a_second_writing_of_the_rules(parts):
    text = "".join(parts)
    assert strict_answer(text) == second_writing(text, "strict")
    assert flexible_answer(text) == second_writing(text, "flexible")
