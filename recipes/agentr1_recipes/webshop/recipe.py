"""The WebShop recipe: goals as tasks, from WebShop's files or from the invented catalogue."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr1_core.errors import ConfigError
from agentr1_core.recipe import Recipe
from agentr1_core.task import Task
from agentr1_recipes.bridges.bridge import library

if TYPE_CHECKING:
    from agentr1_recipes.webshop.goal import Goal


class WebShop(Recipe):
    """Buy the product that an instruction asks for.

    Args:
        data: Folder of WebShop's files (see ``loader.py``); the invented catalogue when unset.
        goals: ``human``: the instructions that people wrote. ``synthetic``: one for each combination of options.
        n_test: Goals of the split ``test``; see ``split_goals`` for small catalogues.
        n_validation: Goals of the split ``eval``.
    """

    name = "webshop"
    description = "Buy what an instruction asks for in a shop of pages: search, open, choose options, buy."
    splits = ("train", "eval", "test")

    def __init__(
        self, data: str | None = None, goals: str = "human", n_test: int = 500, n_validation: int = 1000
    ) -> None:
        for module in ("agentr1_tools", "Stemmer", "ijson", "rapidfuzz"):
            library(module, self.name)
        if goals not in ("human", "synthetic"):
            raise ConfigError(f"`recipe.goals` is '{goals}'.", "Say human or synthetic.")
        self.data = data
        self.goals = goals
        self.n_test = n_test
        self.n_validation = n_validation

    def tasks(self, split: str, size: int, seed: int) -> Sequence[Task]:
        goals = self._split(split)
        if split == "train":
            goals = random.Random(f"train/{seed}").sample(goals, len(goals))
        return [self._task(goal) for goal in goals[:size]]

    def n_tasks(self, split: str) -> int:
        return len(self.tasks(split, sys.maxsize, 0))

    def demonstrations(self, size: int, seed: int) -> Sequence[Mapping[str, Any]]:
        from agentr1_recipes.webshop.demonstrations import demonstrate
        from agentr1_recipes.webshop.loader import open_shop

        rng = random.Random(f"demonstrations/{seed}")
        shop, goals = open_shop(self.data), self._split("train")
        return [demonstrate(shop, rng.choice(goals), rng) for _ in range(size)]

    def base_model(self, folder: Path, seed: int) -> Path:
        from agentr1_recipes.tiny import as_texts, write_tiny_model

        texts = as_texts(self.demonstrations(800, 0))
        return write_tiny_model(folder, texts, seed, heads=3, vocab_size=1200, max_context=2048)

    @classmethod
    def run_files(cls) -> Mapping[str, Path]:
        names = ("trl-tiny", "trl-1gpu", "trl-8gpu", "openrlhf-tiny", "openrlhf-1gpu", "openrlhf-8gpu")
        return {name: Path(__file__).parent / "runs" / f"{name}.yaml" for name in names}

    def _split(self, split: str) -> list[Goal]:
        from agentr1_recipes.webshop.goal import split_goals
        from agentr1_recipes.webshop.loader import read_goals

        kind = "human" if self.goals == "human" else "synthetic"
        return split_goals(read_goals(self.data, kind), self.n_test, self.n_validation)[split]

    def _task(self, goal: Goal) -> Task:
        row = {"goal": goal.as_row(), "catalogue": self.data, "data_source": "webshop"}
        return Task(row, f"webshop goal for {goal.asin}")
