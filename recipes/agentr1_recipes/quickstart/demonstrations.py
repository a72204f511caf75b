"""Deliberately poor demonstrations of the adding task: half of them are broken or wrong.

They teach a fresh model the language of the task and leave plenty to learn; the recipe warm-starts on them.
"""

from __future__ import annotations

import random
from typing import Any

from agentr1_core.tool_format import HermesFormat
from agentr1_recipes.quickstart.env import SPECS, show

LARGEST = 9
_TOOL_COLUMN = [{"type": "function", "function": spec} for spec in SPECS]


def sample_numbers(rng: random.Random) -> list[int]:
    """The three numbers of one task."""
    return [rng.randint(1, LARGEST) for _ in range(3)]


def demonstrate(rng: random.Random, share_bad: float = 0.5) -> dict[str, Any]:
    """One row of ``prompt``, ``completion`` and ``tools`` at a random moment of a random task."""
    have, *todo = sample_numbers(rng)
    for _ in range(rng.randint(0, 2)):
        have += todo.pop(0)
    write = HermesFormat().write
    good = write("add", {"a": have, "b": todo[0]}) if todo else write("answer", {"value": have})
    said = _spoil(good, rng) if rng.random() < share_bad else good
    return {
        "prompt": list(show(have, todo)),
        "completion": [{"role": "assistant", "content": said}],
        "tools": _TOOL_COLUMN,
    }


def _spoil(good: str, rng: random.Random) -> str:
    """A broken or wrong version of a good call."""

    def number() -> int:
        return rng.randint(1, 3 * LARGEST)

    write = HermesFormat().write
    return rng.choice(
        [
            good.removesuffix(HermesFormat.CLOSE),
            good.replace("}}", "}"),
            good.removeprefix(HermesFormat.OPEN + "\n"),
            write("add", {"a": number(), "b": number()}),
            write("answer", {"value": number()}),
            f"The answer is {number()}",
        ]
    )
