"""The household recipe: houses as tasks, poor demonstrations, a small model, and run files."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agentr1_core.errors import ConfigError
from agentr1_core.recipe import Recipe
from agentr1_core.task import Task
from agentr1_recipes.household.catalogue import ROOMS
from agentr1_recipes.household.house import TASK_TYPES, build_house
from agentr1_recipes.textgame.env import GameRules

#: Room layouts that are trained on, and those that ``valid_unseen`` alone has.
N_SEEN, N_UNSEEN = 100, 20
#: What the small model is trained on: the prompt is written anew each turn and is short.
TINY_RULES = GameRules(system_prompt="", history=1, max_turns=20)


class Household(Recipe):
    """Find a thing, clean, heat or cool it if asked to, and put it where it should be.

    Args:
        task_types: Which tasks there are; all four when left out.
        receptacles: Receptacles of a house; at least 5.
        objects: Objects in it.
        rooms: Kinds of rooms; all four when left out.

    Raises:
        ConfigError: There is no such task type.
    """

    name = "household"
    description = "Find things in small text houses, clean, heat or cool them, and put them away; plain Python."
    splits: ClassVar[tuple[str, ...]] = ("train", "eval", "valid_seen", "valid_unseen")

    def __init__(
        self,
        task_types: Sequence[str] | None = None,
        receptacles: int = 8,
        objects: int = 10,
        rooms: Sequence[str] | None = None,
    ) -> None:
        unknown = [each for each in task_types or () if each not in TASK_TYPES]
        if unknown:
            raise ConfigError(f"`recipe.task_types`: no type '{unknown[0]}'.", f"Types: {', '.join(TASK_TYPES)}.")
        self.task_types = tuple(task_types or TASK_TYPES)
        self.house = {"receptacles": receptacles, "objects": objects, "rooms": list(rooms or ROOMS)}
        for task_type in self.task_types:
            build_house("0", "0", task_type, **self.house)  # says now what no house can have

    def tasks(self, split: str, size: int, seed: int) -> Sequence[Task]:
        """``valid_seen`` (``eval`` for short) has the rooms of ``train`` with other things in them; ``valid_unseen``
        has other rooms. Held-out tasks are the same for every seed."""
        split = "valid_seen" if split == "eval" else split
        rng = random.Random(f"train/{seed}" if split == "train" else split)
        first, count = (N_SEEN, N_UNSEEN) if split == "valid_unseen" else (0, N_SEEN)
        return [
            Task(
                {
                    "task_type": self.task_types[number % len(self.task_types)],
                    "layout": str(first + rng.randrange(count)),
                    "placement": f"{split}/{rng.randrange(10**9)}",
                    **self.house,
                },
                f"household {split} task {number}",
            )
            for number in range(size)
        ]

    def demonstrations(self, size: int, seed: int) -> Sequence[Mapping[str, Any]]:
        from agentr1_recipes.household.demonstrations import demonstrate

        return demonstrate(self.tasks("train", max(size // 10, 1), seed), size, seed, TINY_RULES)

    def base_model(self, folder: Path, seed: int) -> Path:
        from agentr1_recipes.tiny import as_texts, write_tiny_model

        texts = as_texts(self.demonstrations(600, 0))  # a tokenizer for this recipe's settings
        return write_tiny_model(
            folder, texts, seed, hidden=96, heads=3, layers=2, vocab_size=768, max_context=768, phrases=True
        )

    @classmethod
    def run_files(cls) -> Mapping[str, Path]:
        folder = Path(__file__).with_name("runs")
        variants = ("trl-tiny", "trl-1gpu", "trl-8gpu", "openrlhf-tiny", "openrlhf-1gpu", "openrlhf-8gpu")
        return {name: folder / f"{name}.yaml" for name in variants}
