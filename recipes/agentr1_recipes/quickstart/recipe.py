"""The quick-start recipe: tasks, poor demonstrations, a model made from nothing, and the run file."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentr1_core.recipe import Recipe
from agentr1_core.task import Task
from agentr1_recipes.quickstart.demonstrations import demonstrate, sample_numbers


class Quickstart(Recipe):
    """Add three numbers with tools, one addition a turn."""

    name = "quickstart"
    description = "A small model learns to add three numbers with tools, one addition a turn."

    def tasks(self, split: str, size: int, seed: int) -> Sequence[Task]:
        # Held-out tasks are the same for every seed, so that runs can be compared.
        rng = random.Random(f"train/{seed}" if split == "train" else "eval")
        return [Task({"numbers": sample_numbers(rng)}, f"quickstart {split} task {i}") for i in range(size)]

    def demonstrations(self, size: int, seed: int) -> Sequence[Mapping[str, Any]]:
        rng = random.Random(f"demonstrations/{seed}")
        return [demonstrate(rng) for _ in range(size)]

    def base_model(self, folder: Path, seed: int) -> Path:
        from agentr1_recipes.quickstart.tiny_model import write_tiny_model

        return write_tiny_model(folder, seed)

    @classmethod
    def run_files(cls) -> Mapping[str, Path]:
        return {"trl": Path(__file__).with_name("run.yaml")}
