"""Deliberately poor demonstrations of word problems: half of them are broken or wrong.

They teach a fresh model the language of the task and leave plenty to learn; the recipe warm-starts on them.
"""

from __future__ import annotations

import random
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
    said = _spoil(good, problem, rng) if rng.random() < 0.5 else good
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": said}], "tools": _TOOL_COLUMN}


def _exchange(said: str, value: str, identity: str) -> list[dict[str, Any]]:
    """A call as it stands in the history, and what the calculator said."""
    ((name, arguments),) = HermesFormat().parse(said).calls
    call = {"type": "function", "id": identity, "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": identity, "name": name, "content": value},
    ]


def _spoil(good: str, problem: dict[str, Any], rng: random.Random) -> str:
    """A broken or wrong version of a good answer."""
    numbers = [word for word in problem["question"].split() if word.isdigit()]
    write = HermesFormat().write
    guess = rng.choice(numbers)
    wrong_call = write("calculator", {"expression": f"{rng.choice(numbers)}{rng.choice('+-*/')}{guess}"})
    if good.startswith("####"):
        return rng.choice([f"#### {guess}", good.removeprefix("#### "), f"It is {guess}", wrong_call])
    return rng.choice(
        [
            good.removesuffix(HermesFormat.CLOSE),
            good.replace("}}", "}"),
            wrong_call,
            wrong_call,
            f"#### {guess}",
        ]
    )
