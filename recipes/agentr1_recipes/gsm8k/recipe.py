"""The GSM8K recipe: the public data or a small set of its own, demonstrations, a tiny model, and the run files."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentr1_core.errors import ConfigError
from agentr1_core.recipe import Recipe
from agentr1_core.task import Task
from agentr1_recipes.gsm8k.loader import SYSTEM_PROMPT, load
from agentr1_recipes.gsm8k.word_problems import DATA

RUNS = Path(__file__).with_name("runs")


class GSM8K(Recipe):
    """Word problems with a calculator.

    Args:
        data: ``own`` for the recipe's own small set; or a hub id (``openai/gsm8k:main``), a file, or a folder with a
            file for each split, in GSM8K's columns or as verl and Agent-R1 process them.
        system_prompt: Shown first; rows with a prompt of their own keep theirs.
    """

    name = "gsm8k"
    description = "Word problems, solved with a calculator, one calculation a turn."
    #: ``hard`` takes three calculations where ``train`` and ``eval`` take one or two; only the own set has it.
    splits = ("train", "eval", "hard")

    def __init__(self, data: str = "own", system_prompt: str | None = SYSTEM_PROMPT) -> None:
        self.data = data
        self.system_prompt = system_prompt

    def tasks(self, split: str, size: int, seed: int) -> Sequence[Task]:
        if split == "hard" and self.data != "own":
            raise ConfigError(
                f"The data '{self.data}' has no split 'hard'.", "Only the recipe's own set has it: `data: own`."
            )
        tasks = load(DATA if self.data == "own" else self.data, split, self.system_prompt)
        if split == "train":  # held-out tasks are the same for every seed, so that runs can be compared
            random.Random(seed).shuffle(tasks)
        return tasks[:size]

    def n_tasks(self, split: str) -> int:
        return len(self.tasks(split, sys.maxsize, 0))

    def demonstrations(self, size: int, seed: int) -> Sequence[Mapping[str, Any]]:
        from agentr1_recipes.gsm8k.demonstrations import demonstrate

        held_out = {task.extra_info["question"] for split in ("eval", "hard") for task in load(DATA, split)}
        rng = random.Random(f"demonstrations/{seed}")
        return [demonstrate(rng, self.system_prompt, held_out) for _ in range(size)]

    def base_model(self, folder: Path, seed: int) -> Path:
        from agentr1_recipes.tiny import as_texts, write_tiny_model

        # Every number of a problem becomes one token, which a small model copies more easily than digits.
        texts = [*as_texts(self.demonstrations(600, 1)), *[" ".join(map(str, range(1, 200)))] * 60]
        return write_tiny_model(
            folder, texts, seed, heads=3, vocab_size=768, max_context=256, initial_std=0.1, phrases=True
        )

    @classmethod
    def run_files(cls) -> Mapping[str, Path]:
        return {name: RUNS / f"{name}.yaml" for name in _RUN_FILES}


_RUN_FILES = ("trl-tiny", "trl-1gpu", "trl-8gpu", "openrlhf-tiny", "openrlhf-1gpu", "openrlhf-8gpu", "agent-r1")
