"""Selectors: how likely a paper answers a question, from 0 to 1.

One ranks the pool that the agent sees, another judges what a call found. A selector of your own, such as a model, is
named in the run file as ``package.module:Class``; it is made with the corpus and needs a method ``score``.
"""

from __future__ import annotations

import functools
import importlib
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, Protocol

from agentr1_core.errors import ConfigError
from agentr1_recipes.papers.corpus import Corpus, Paper

_WORD = re.compile(r"[^\W_]+")
_ONE_AT_A_TIME = threading.Lock()


class Selector(Protocol):
    """Scores papers. One instance serves all episodes of a corpus."""

    def score(self, question: str, paper: Paper) -> float:
        """How likely the paper answers the question, from 0 to 1."""


class LexicalSelector:
    """The share of the question's words that the paper's title and abstract contain, rare words weighing more.

    Words are compared by their stems; a word weighs ``ln(1 + N / n)``, ``n`` of the ``N`` papers having it, and a word
    that no paper has weighs nothing.
    """

    def __init__(self, corpus: Corpus) -> None:
        from Stemmer import Stemmer

        self._stem = Stemmer("english").stemWord
        self._n = len(corpus)
        self._words = {paper.id: self._stems(f"{paper.title} {paper.abstract}") for paper in corpus.papers}
        self._found_in = Counter(word for words in self._words.values() for word in words)

    def score(self, question: str, paper: Paper) -> float:
        words = self._words.get(paper.id)
        if words is None:
            words = self._stems(f"{paper.title} {paper.abstract}")
        weights = {
            word: math.log(1 + self._n / self._found_in[word]) for word in self._stems(question) if self._found_in[word]
        }
        total = sum(weights.values())
        return sum(weight for word, weight in weights.items() if word in words) / total if total else 0.0

    def _stems(self, text: str) -> frozenset[str]:
        return frozenset(self._stem(word) for word in _WORD.findall(text.lower()))


class GoldSelector:
    """1 for an answer of the question, 0 for any other paper: only to judge, never to show."""

    def __init__(self, answers: Collection[str]) -> None:
        self._answers = frozenset(answers)

    def score(self, question: str, paper: Paper) -> float:
        return float(paper.id in self._answers)


def make_selector(name: str, corpus: Corpus, key: str) -> Selector:
    """The selector of that name, made once for each corpus.

    Args:
        name: ``lexical``, or a class as ``package.module:Class``.
        corpus: What it is made with.
        key: The setting that names it, for the error.

    Raises:
        ConfigError: There is none, or it has no method ``score``.
    """
    with _ONE_AT_A_TIME:  # many episodes begin at once
        return _make(name, corpus, key)


@functools.lru_cache(maxsize=8)
def _make(name: str, corpus: Corpus, key: str) -> Selector:
    return _find(name, key)(corpus)


def _find(name: str, key: str) -> Callable[[Corpus], Selector]:
    if name == "lexical":
        return LexicalSelector
    module, _, attribute = name.partition(":")
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"`{key}` of paper search is '{name}': {error}.", "Say lexical, or package.module:Class."
        ) from error
    if not callable(getattr(found, "score", None)):
        raise ConfigError(f"`{key}` of paper search: '{name}' has no method `score`.", "See the protocol Selector.")
    return found  # type: ignore[no-any-return]
