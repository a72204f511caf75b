"""The multi-hop recipe: public data or a small world of its own, demonstrations, a tiny model, and the run files."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentr1_core.recipe import Recipe
from agentr1_core.task import Task
from agentr1_recipes.multihop.loader import SYSTEM_PROMPT, load
from agentr1_recipes.multihop.world import DATA, make_world

RUNS = Path(__file__).with_name("runs")


class MultiHop(Recipe):
    """Questions whose answer takes several passages.

    Args:
        data: ``own`` for the questions of the recipe's own small world; or a hub id
            (``hotpotqa/hotpot_qa:distractor``), a file, or a folder with a file for each split, in the format of
            HotpotQA, 2WikiMultihopQA or MuSiQue, or as Agent-R1 processes them.
        system_prompt: Shown first; rows with a prompt of their own keep theirs.
    """

    name = "multihop"
    description = "Questions that take several searches: HotpotQA, 2WikiMultihopQA, MuSiQue, or a small world."

    def __init__(self, data: str = "own", system_prompt: str | None = SYSTEM_PROMPT) -> None:
        self.data = data
        self.system_prompt = system_prompt

    def tasks(self, split: str, size: int, seed: int) -> Sequence[Task]:
        tasks = load(DATA if self.data == "own" else self.data, split, self.system_prompt)
        if split == "train":  # held-out tasks are the same for every seed, so that runs can be compared
            random.Random(seed).shuffle(tasks)
        return tasks[:size]

    def n_tasks(self, split: str) -> int:
        return len(self.tasks(split, sys.maxsize, 0))

    def demonstrations(self, size: int, seed: int) -> Sequence[Mapping[str, Any]]:
        from agentr1_recipes.multihop.demonstrations import demonstrate

        tasks, passages = load(DATA, "train", self.system_prompt), make_world().passages
        rng = random.Random(f"demonstrations/{seed}")
        return [demonstrate(rng, tasks, passages) for _ in range(size)]

    def base_model(self, folder: Path, seed: int) -> Path:
        from agentr1_recipes.tiny import as_texts, write_tiny_model

        texts = as_texts(self.demonstrations(600, 1))
        return write_tiny_model(folder, texts, seed, heads=3, vocab_size=1024, initial_std=0.1)

    @classmethod
    def run_files(cls) -> Mapping[str, Path]:
        return {name: RUNS / f"{name}.yaml" for name in _RUN_FILES}


_RUN_FILES = (
    "trl-tiny",
    "trl-1gpu",
    "trl-8gpu",
    "openrlhf-tiny",
    "openrlhf-1gpu",
    "openrlhf-8gpu",
    "fullwiki",
    "agent-r1",
)
