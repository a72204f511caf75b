"""Two policies that need no model: one that knows which passages to look for, and one that knows nothing.

They answer a task of this recipe with texts, turn by turn, and show what the environment can give: nearly 1 and
nearly 0.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from agentr1_core.task import Task
from agentr1_core.tool_format import HermesFormat

_WRITE = HermesFormat().write


def expert(task: Task) -> Sequence[str]:
    """One search for the title of each supporting passage, then the first gold answer."""
    searches = [_WRITE("search", {"query": title}) for title in task.extra_info["supporting"]]
    return [*searches, f"<answer>{task.ground_truth[0]}</answer>"]


def random_policy(task: Task, rng: random.Random) -> Sequence[str]:
    """A search for a random word of the question, which is then the answer too."""
    word = rng.choice(str(task.extra_info["question"]).split())
    return [_WRITE("search", {"query": word}), f"<answer>{word}</answer>"]
