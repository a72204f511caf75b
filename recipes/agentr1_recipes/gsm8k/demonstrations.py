"""Deliberately poor demonstrations of word problems: half of them are broken or wrong.

They teach a fresh model the language of the task and leave plenty to learn; the recipe warm-starts on them.
"""

from __future__ import annotations

import random
import re
from collections.abc import Collection
from typing import Any

from agentr1_core.tool_format import HermesFormat
from agentr1_recipes.gsm8k.loader import calculations, to_task
from agentr1_recipes.gsm8k.oracle import expert
from agentr1_recipes.gsm8k.word_problems import make_problem
from agentr1_tools.calculator import Calculator

_TOOL_COLUMN = [{"type": "function", "function": Calculator().spec}]


def demonstrate(rng: random.Random, system_prompt: str | None, without: Collection[str] = ()) -> dict[str, Any]:
    """One row of ``prompt``, ``completion`` and ``tools`` at a random moment of a random problem.

    Args:
        rng: Source of chance.
        system_prompt: Shown first.
        without: Questions that are kept for evaluation.
    """
    problem = make_problem(rng)
    while problem["question"] in without:
        problem = make_problem(rng)
    task = to_task(problem, "a demonstration", "train", 0, system_prompt)
    answers, values = expert(task), [value for _, value in calculations(problem["answer"])]
    turn = rng.randrange(len(answers))
    prompt = list(task.prompt)
    for position, (said, value) in enumerate(zip(answers[:turn], values, strict=False)):
        prompt += _exchange(said, value, f"call_{position}")
    good = answers[turn]
    said = _spoil(good, rng) if rng.random() < 0.5 else good
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": said}], "tools": _TOOL_COLUMN}


def _exchange(said: str, value: str, identity: str) -> list[dict[str, Any]]:
    """A call as it stands in the history, and what the calculator said."""
    ((name, arguments),) = HermesFormat().parse(said).calls
    call = {"type": "function", "id": identity, "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": identity, "name": name, "content": value},
    ]


def _spoil(good: str, rng: random.Random) -> str:
    """A broken or wrong version of a good answer: the numbers are right, what is done with them is not."""
    if good.startswith("####"):
        number = good.removeprefix("#### ")
        return rng.choice([number, f"It is {number}", f"#### {number} or so, perhaps"])
    ((name, arguments),) = HermesFormat().parse(good).calls
    left, sign, right = re.split(r"([-+*/])", arguments["expression"])
    others = [HermesFormat().write(name, {"expression": f"{left}{other}{right}"}) for other in "+-*/" if other != sign]
    return rng.choice([*others, good.removesuffix(HermesFormat.CLOSE), good.replace("}}", "}"), f"#### {left}"])
