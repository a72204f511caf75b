"""Two policies that need no model: one that follows the worked solution, and one that knows nothing.

They answer a task of this recipe with texts, turn by turn, and show what the environment can give: nearly 1 and
nearly 0.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentr1_core.task import Task
from agentr1_core.tool_format import HermesFormat
from agentr1_recipes.gsm8k.loader import calculations, final_number

_WRITE = HermesFormat().write


def expert(task: Task) -> Sequence[str]:
    """One call of the calculator for each calculation of the worked solution, then the answer."""
    solution = task.extra_info["answer"]
    calls = [_WRITE("calculator", {"expression": text.strip()}) for text, _ in calculations(solution)]
    return [*calls, f"#### {final_number(solution)}"]


def random_policy(rng: random.Random) -> Sequence[str]:
    """A calculation with random numbers, then a random answer."""
    a, b, answer = (rng.randint(1, 999) for _ in range(3))
    return [_WRITE("calculator", {"expression": f"{a}{rng.choice('+-*/')}{b}"}), f"#### {answer}"]
