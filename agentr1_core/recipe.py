"""A recipe: tasks, demonstrations, a base model and the run file that trains on them, under one name.

Plugins offer recipes through ``agentr1_recipes``; ``agentr1 train NAME`` runs one. A recipe only provides material:
it never trains, and it never reads the run's configuration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from agentr1_core.errors import ConfigError
from agentr1_core.task import Task


class Recipe(ABC):
    """Ready material for a run. One instance serves one run.

    Keys beside ``name`` in the run file's ``recipe`` section are arguments of the constructor.
    """

    #: What ``agentr1 train`` and ``recipe:`` in a run file call it.
    name: ClassVar[str]
    #: One sentence for people who choose.
    description: ClassVar[str] = ""
    #: Splits it has tasks for. Runs train on ``train`` and evaluate on ``eval``; others are for ``agentr1 eval``.
    splits: ClassVar[tuple[str, ...]] = ("train", "eval")

    @abstractmethod
    def tasks(self, split: str, size: int, seed: int) -> Sequence[Task]:
        """``size`` tasks (fewer where the recipe has no more); the same for the same split, size and seed."""

    def demonstrations(self, size: int, seed: int) -> Sequence[Mapping[str, Any]]:
        """Rows of ``prompt`` and ``completion`` messages for a warm start; none by default."""
        return ()

    def base_model(self, folder: Path, seed: int) -> Path:
        """Write a small untrained model with its tokenizer to ``folder``, in the Hugging Face layout.

        Returns:
            Where it is.

        Raises:
            ConfigError: The recipe brings no model of its own.
        """
        raise ConfigError(
            f"Recipe '{self.name}' brings no model of its own.", "Name one: `model: <hub id or folder>` or `--model`."
        )

    @classmethod
    @abstractmethod
    def run_files(cls) -> Mapping[str, Path]:
        """The run files shipped with the recipe, by name.

        ``agentr1 train RECIPE`` takes the first, ``agentr1 train RECIPE/NAME`` any.
        """
