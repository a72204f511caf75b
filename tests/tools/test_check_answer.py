"""The answer checker and the GSM8K reward: what is right, what is wrong, and answers made to hang a judge."""

import asyncio
from decimal import Decimal

import pytest

from agentr1_core.plugins import PluginManager
from agentr1_core.testing.tool_kit import ToolKit
from agentr1_core.tool import ToolContext, ToolOutcome, call_tool
from agentr1_tools import check_answer
from agentr1_tools.check_answer import CheckAnswer, gsm8k, gsm8k_number


class Said:
    """A trajectory whose last message is the text."""

    def __init__(self, text, **row):
        action = type("Action", (), {"message": {"role": "assistant", "content": text}, "text": text})
        self.steps = (type("Step", (), {"action": action}),)
        self.task = row


def check(answers, row=None, kwargs=None, **settings):
    async def run():
        tool = CheckAnswer(**settings)
        try:
            ctx = ToolContext(task=row or {}, kwargs=kwargs or {})
            return [await call_tool({tool.name: tool}, tool.name, {"answer": said}, ctx) for said in answers]
        finally:
            await tool.close()

    return asyncio.run(asyncio.wait_for(run(), 120))


def test_plain_numbers():
    results = check(["18", "18.0", "$18", "1,8", "#### 18", "17"], {"answer": "18"})
    assert [result.response.text == "Right." for result in results] == [True, True, True, True, True, False]


def test_what_is_no_plain_number_is_judged_as_mathematics():
    results = check(["0.5", "\\frac{2}{4}", "50", "x"], {"reward_model": {"ground_truth": "\\frac{1}{2}"}})
    assert [result.response.info["right"] for result in results] == [True, True, False, False]


def test_an_answer_that_hangs_the_judge_counts_as_wrong_and_the_next_is_judged(monkeypatch):
    """No text is known that hangs math-verify today, so the judge is told of one."""
    hangs = check_answer._CHECKER.replace(
        "    try:\n", "    if said == 'hang': import time; time.sleep(60)\n    try:\n"
    )
    monkeypatch.setattr(check_answer, "_CHECKER", hangs)
    hang, fine = check(["hang", "\\frac{1}{2}"], {"answer": "0.50 "}, deadline_s=0.5)
    assert hang.response.text == "Wrong."
    assert fine.response.text == "Right."


def test_a_judge_that_does_not_start_is_no_wrong_answer(monkeypatch):
    monkeypatch.setattr(check_answer, "_CHECKER", "import no_such_module")
    (result,) = check(["x"], {"answer": "\\frac{1}{2}"})
    assert result.outcome is ToolOutcome.CRASHED
    assert "math-verify did not start" in result.response.text


def test_hostile_answers_are_only_wrong():
    hostile = ["9^{9^{9^{9^{9}}}}", "(10^{7})!", "((((", "\\frac{1}{0}", "\u0000"]
    results = check(hostile, {"answer": "\\sqrt{2}"})
    assert [result.response.text for result in results] == ["Wrong."] * len(hostile)


def test_the_truth_comes_from_the_tools_own_arguments_first():
    (result,) = check(["7"], {"answer": "8"}, {"ground_truth": "7"}, reward=2.0, ends=True)
    assert (result.response.text, result.response.reward, result.response.done) == ("Right.", 2.0, True)


def test_a_wrong_answer_earns_nothing_and_does_not_show_the_truth():
    (result,) = check(["7"], {"answer": "8"}, reward=1.0)
    assert (result.response.text, result.response.reward, result.response.done) == ("Wrong.", 0.0, False)


def test_a_row_without_a_truth_and_an_empty_answer():
    (nothing,) = check(["7"])
    assert nothing.outcome is ToolOutcome.CRASHED
    assert "needs a ground truth" in nothing.response.text
    (empty,) = check(["  "], {"answer": "8"})
    assert empty.response.text == "The tool 'check_answer' failed: The answer is empty."


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("She has 3 + 4 = <<3+4=7>>7 left.\n#### 7", "7"),
        ("#### 1,250 dollars, not 3", "1250"),
        ("The answer is $18.50.", "18.50"),
        ("first 3, then -4", "-4"),
        ("<answer>12</answer>", "12"),
        ("none", None),
    ],
)
def test_the_number_of_a_gsm8k_solution(text, number):
    assert gsm8k_number(text) == (None if number is None else Decimal(number))


def test_the_gsm8k_reward():
    row = {"answer": "It costs 4 * 5 = <<4*5=20>>20.\n#### 20"}
    assert gsm8k(Said("So it is 20.0", **row)) == 1
    assert gsm8k(Said("So it is 21", **row)) == 0
    assert gsm8k(Said("I do not know", **row)) == 0
    assert PluginManager.discover().get("reward", "gsm8k") is gsm8k


class TestCheckAnswerKeepsTheContract(ToolKit):
    def make_tool(self):
        class Fixed(CheckAnswer):
            def _truths(self, ctx):
                return ["4"]

        return Fixed()

    def good_calls(self):
        return [{"answer": "4"}, {"answer": "5"}]
