"""The paper-search recipe: questions with known answers, on a corpus of your own or on the invented one."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentr1_core.errors import ConfigError
from agentr1_core.recipe import Recipe
from agentr1_core.task import Task
from agentr1_recipes.bridges.bridge import library
from agentr1_recipes.papers.corpus import Question

#: Shares of the questions that are held out.
HELD_OUT = {"eval": 1 / 6, "test": 1 / 6}


class Papers(Recipe):
    """Find the papers that answer a question, by search and by following references.

    Args:
        data: Folder of ``papers.jsonl`` and ``queries.jsonl`` (see ``loader.py``); the invented corpus when unset.
        questions: ``own``: those of ``queries.jsonl``. ``citations``: made from the corpus, a title asking for what the
            paper cites. ``mixed``: train on ``citations``; eval and test on ``own``.
        pool_size: Papers shown in demonstrations, as in the environment.
        search_size: Papers that one search returns in demonstrations, as in the environment.
    """

    name = "papers"
    description = "Find the papers that answer a question; the context is rebuilt from history and pool every step."
    splits = ("train", "eval", "test")

    def __init__(
        self, data: str | None = None, questions: str = "own", pool_size: int = 20, search_size: int = 20
    ) -> None:
        for module in ("agentr1_tools", "Stemmer"):
            library(module, self.name)
        if questions not in ("own", "citations", "mixed"):
            raise ConfigError(f"`recipe.questions` is '{questions}'.", "Say own, citations or mixed.")
        self.data = data
        self.questions = questions
        self.pool_size = pool_size
        self.search_size = search_size

    def tasks(self, split: str, size: int, seed: int) -> Sequence[Task]:
        chosen = self._questions(split)
        if split == "train":
            chosen = random.Random(f"train/{seed}").sample(chosen, len(chosen))
        return [self._task(question) for question in chosen[:size]]

    def n_tasks(self, split: str) -> int:
        return len(self.tasks(split, sys.maxsize, 0))

    def demonstrations(self, size: int, seed: int) -> Sequence[Mapping[str, Any]]:
        from agentr1_recipes.papers.demonstrations import demonstrate
        from agentr1_recipes.papers.loader import open_corpus

        rng = random.Random(f"demonstrations/{seed}")
        corpus, questions = open_corpus(self.data), self._questions("train")
        sizes = {"pool_size": self.pool_size, "search_size": self.search_size}
        return [demonstrate(corpus, rng.choice(questions), rng, **sizes) for _ in range(size)]

    def base_model(self, folder: Path, seed: int) -> Path:
        from agentr1_recipes.tiny import as_texts, write_tiny_model

        texts = as_texts(self.demonstrations(1500, 0))
        return write_tiny_model(folder, texts, seed, heads=3, vocab_size=1600, max_context=1024)

    @classmethod
    def run_files(cls) -> Mapping[str, Path]:
        names = ("trl-tiny", "trl-1gpu", "trl-8gpu", "openrlhf-tiny", "openrlhf-1gpu", "openrlhf-8gpu")
        return {name: Path(__file__).parent / "runs" / f"{name}.yaml" for name in names}

    def _questions(self, split: str) -> list[Question]:
        """The split's questions, always in the same order."""
        from agentr1_recipes.papers.invented import invent
        from agentr1_recipes.papers.loader import citation_questions, open_corpus, read_questions

        if self.questions == "mixed" and split != "train" and self.data is not None:
            return _half(read_questions(self.data), split)
        if self.questions != "own":
            found = citation_questions(open_corpus(self.data))
            return found if self.questions == "mixed" and self.data is not None else _share(found, split)
        return _share(list(invent().questions) if self.data is None else read_questions(self.data), split)

    def _task(self, question: Question) -> Task:
        row = {"question": question.text, "answers": question.answers, "hidden": question.hidden, "corpus": self.data}
        return Task({**row, "data_source": "papers"}, f"papers question {question.id}")


def _share(questions: Sequence[Question], split: str) -> list[Question]:
    """A split of questions, drawn once and for all."""
    order = random.Random("split").sample(list(questions), len(questions))
    start = 0
    for name, share in HELD_OUT.items():
        end = start + round(share * len(order))
        if name == split:
            return order[start:end]
        start = end
    return order[start:]


def _half(questions: Sequence[Question], split: str) -> list[Question]:
    order = random.Random("split").sample(list(questions), len(questions))
    half = len(order) // 2
    return order[:half] if split == "eval" else order[half:]
