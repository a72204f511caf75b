"""Tasks of reasoning-gym: one question, one answer, scored by the library. Run files name it ``reasoning_gym``.

Rows give ``index``, the number of the question in the generated data set; everything else is settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from agentr1_core.errors import DataError
from agentr1_core.task import Task
from agentr1_recipes.bridges.bridge import Bridge, Reply, library

#: Appended to each question unless another instruction is set.
INSTRUCTION = "Give the final answer between <answer> and </answer>."


class ReasoningGymEnv(Bridge):
    """One question.

    Args:
        dataset: Name of the generator, such as ``basic_arithmetic``.
        size: Questions that are generated.
        seed: Seed of the generator.
        config: Further settings of the generator.
        instruction: Appended to each question.
        system_prompt: Shown first.
    """

    def __init__(
        self,
        dataset: str,
        *,
        size: int = 1000,
        seed: int = 0,
        config: Mapping[str, Any] | None = None,
        instruction: str = INSTRUCTION,
        system_prompt: str | None = None,
    ) -> None:
        super().__init__(system_prompt=system_prompt, seed=seed)
        self.dataset, self.size, self.instruction = dataset, size, instruction
        self.config = tuple(sorted((config or {}).items()))

    def begin(self, task: Task, seed: int) -> str:
        gym = library("reasoning_gym", "reasoning_gym")
        self._questions = _generate(gym, self.dataset, self.size, self.seed, self.config)
        index = task.get("index", task.extra_info.get("index"))
        if not isinstance(index, int) or not 0 <= index < self.size:
            raise DataError(f"{task.where}: `index` is {index!r}.", f"Give a number from 0 to {self.size - 1}.")
        self._entry = self._questions[index]
        return f"{self._entry['question']}\n\n{self.instruction}".strip()

    def play(self, answer: str) -> Reply:
        extract = library("reasoning_gym.utils", "reasoning_gym").extract_answer
        given = extract(answer)
        score = float(self._questions.score_answer(given if given is not None else answer.strip(), self._entry))
        return Reply(f"Score: {score:g}", score, terminated=True, info={"success": score >= 1.0})


@lru_cache(maxsize=8)
def _generate(gym: Any, dataset: str, size: int, seed: int, config: tuple[tuple[str, Any], ...]) -> Any:
    """Generators are lazy but some read word lists: episodes share them."""
    return gym.create_dataset(dataset, size=size, seed=seed, **dict(config))
