"""The ALFWorld recipe: games as tasks, demonstrations from ALFWorld's expert, a small model, and run files."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agentr1_core.errors import ConfigError
from agentr1_core.recipe import Recipe
from agentr1_core.task import Task
from agentr1_recipes.alfworld.games import SPLIT_FOLDERS, TASK_TYPES, find_data, find_games, is_solvable


class Alfworld(Recipe):
    """Household tasks in text.

    Args:
        data: Folder of the games; ``ALFWORLD_DATA``, else the recipe's own few games, when left out.
        task_types: Only games of these types; all when left out.
        eval_split: What runs evaluate on: ``valid_seen`` or ``valid_unseen``.

    Raises:
        ConfigError: There is no such task type or split.
        DataError: The folder holds no games.
    """

    name = "alfworld"
    description = "Household tasks in text, played with the real TextWorld engine."
    splits: ClassVar[tuple[str, ...]] = ("train", "eval", "valid_seen", "valid_unseen")

    def __init__(
        self, data: str | None = None, task_types: Sequence[str] | None = None, eval_split: str = "valid_seen"
    ) -> None:
        unknown = [each for each in task_types or () if each not in TASK_TYPES]
        if unknown:
            raise ConfigError(f"`recipe.task_types`: no type '{unknown[0]}'.", f"Types: {', '.join(TASK_TYPES)}.")
        if eval_split not in SPLIT_FOLDERS:
            raise ConfigError(f"`recipe.eval_split`: no split '{eval_split}'.", f"Splits: {', '.join(SPLIT_FOLDERS)}.")
        self.data = find_data(data)
        self.task_types = tuple(task_types or TASK_TYPES)
        self.eval_split = eval_split

    def tasks(self, split: str, size: int, seed: int) -> Sequence[Task]:
        """Training games in an order of the seed's; of the others an even draw that is the same for every seed."""
        split = self.eval_split if split == "eval" else split
        games = [game for game in find_games(self.data, split) if game.task_type in self.task_types]
        rng = random.Random(f"train/{seed}" if split == "train" else "held out")
        rng.shuffle(games)
        chosen = []
        for game in games:
            if len(chosen) == size:
                break
            if is_solvable(game):
                chosen.append(game)
        return [
            Task(
                {"game": str(game.path), "task_type": game.task_type, "id": game.name}, f"alfworld {split} {game.name}"
            )
            for game in chosen
        ]

    def n_tasks(self, split: str) -> int:
        return len(self.tasks(split, sys.maxsize, 0))

    def demonstrations(self, size: int, seed: int) -> Sequence[Mapping[str, Any]]:
        from agentr1_recipes.alfworld.demonstrations import read_demonstrations

        return read_demonstrations(size, seed)

    def base_model(self, folder: Path, seed: int) -> Path:
        from agentr1_recipes.alfworld.demonstrations import read_demonstrations
        from agentr1_recipes.tiny import as_texts, write_tiny_model

        texts = as_texts(read_demonstrations(600, 0))
        return write_tiny_model(folder, texts, seed, hidden=96, heads=3, layers=2, vocab_size=768, max_context=1024)

    @classmethod
    def run_files(cls) -> Mapping[str, Path]:
        folder = Path(__file__).with_name("runs")
        variants = ("trl-tiny", "trl-1gpu", "trl-8gpu", "openrlhf-tiny", "openrlhf-1gpu", "openrlhf-8gpu")
        return {name: folder / f"{name}.yaml" for name in variants}
