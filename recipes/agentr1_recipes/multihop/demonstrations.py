"""Deliberately poor demonstrations of two-hop questions: half of them are broken or wrong.

They teach a fresh model the language of the task and leave plenty to learn; the recipe warm-starts on them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from typing import Any

from agentr1_core.task import Task
from agentr1_core.tool_format import HermesFormat
from agentr1_recipes.multihop.oracle import expert
from agentr1_recipes.multihop.tools import PassageSearch

_TOOL_COLUMN = [{"type": "function", "function": PassageSearch().spec}]


def demonstrate(rng: random.Random, tasks: Sequence[Task], passages: Mapping[str, str]) -> dict[str, Any]:
    """One row of ``prompt``, ``completion`` and ``tools`` at a random moment of a random question.

    Args:
        rng: Source of chance.
        tasks: Questions that may be asked.
        passages: The text of each passage by its title, which a search for the title finds first.
    """
    task = rng.choice(tasks)
    titles, answers = task.extra_info["supporting"], expert(task)
    turn = rng.randrange(len(answers))
    prompt = list(task.prompt)
    for position, title in enumerate(titles[:turn]):
        prompt += _exchange(title, passages[title], f"call_{position}")
    good = answers[turn]
    said = _spoil(good, titles[min(turn, len(titles) - 1)], rng) if rng.random() < 0.5 else good
    return {"prompt": prompt, "completion": [{"role": "assistant", "content": said}], "tools": _TOOL_COLUMN}


def _exchange(title: str, text: str, identity: str) -> list[dict[str, Any]]:
    """A search as it stands in the history, and the one passage it found."""
    call = {"type": "function", "id": identity, "function": {"name": "search", "arguments": {"query": title}}}
    found = json.dumps({"results": [f"{title} {text}"]})
    return [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": identity, "name": "search", "content": found},
    ]


def _spoil(good: str, title: str, rng: random.Random) -> str:
    """A broken or wrong version of a good answer; ``title`` is the passage it is about."""
    if good.startswith("<answer>"):
        answer = good.removeprefix("<answer>").removesuffix("</answer>")
        search = HermesFormat().write("search", {"query": answer})
        return rng.choice([f"It is {answer}", search, f"<answer>{title}</answer>"])
    return rng.choice(
        [
            good.removesuffix(HermesFormat.CLOSE),
            good.replace("}}", "}"),
            f"Search for {title}",
            f"<answer>{title}</answer>",
        ]
    )
