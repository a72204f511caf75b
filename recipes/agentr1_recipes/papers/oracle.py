"""Players without a model: an expert that knows the answers, a careful one that does not, and a random one.

Each is a function from what the model is shown, as text, to what it answers; ``agentr1_core.testing.play`` takes it.
They read ids from the text as a model has to.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Collection

from agentr1_core.tool_format import HermesFormat
from agentr1_recipes.papers.corpus import Corpus

_write = HermesFormat().write
_QUESTION = re.compile(r"^(?:user: )?Question: (.*)$", re.MULTILINE)
_PAPER = re.compile(r"^\[([^\]]+)\]", re.MULTILINE)
STOP = "There is nothing more to find."


def search_then_expand(shown: str, width: int = 5) -> str:
    """Search the question as it stands, then expand the ``width`` best papers, then stop."""
    if "\nDone:\n" not in shown:
        return _write("search", {"query": question_in(shown)})
    if "\nExpanded:\n" in shown:
        return STOP
    return _expansions(unexpanded(shown)[:width]) or STOP


def expert(corpus: Corpus, answers: Collection[str], hidden: Collection[str] = ()) -> Callable[[str], str]:
    """Knows the answers: searches once, then expands whatever is shown and cites an answer not found yet."""
    known: set[str] = set()

    def play(shown: str) -> str:
        if "\nDone:\n" not in shown:
            known.clear()
            return _write("search", {"query": question_in(shown)})
        known.update(_PAPER.findall(shown))
        useful = []
        for name in unexpanded(shown):
            leads_to = {paper.id for paper in corpus.references(name, hidden)} & set(answers)
            if leads_to - known:
                useful.append(name)
                known.update(leads_to)
        return _expansions(useful[:5]) or STOP

    return play


def random_policy(rng: random.Random) -> Callable[[str], str]:
    """Searches for words of the question, expands papers, shown or not, and stops, all at random."""

    def play(shown: str) -> str:
        names = _PAPER.findall(shown) or ["p0"]
        choice = rng.random()
        if choice < 0.1:
            return STOP
        if choice < 0.5:
            words = question_in(shown).split()
            return _write("search", {"query": " ".join(rng.sample(words, min(2, len(words))))})
        return _write("expand", {"paper_id": rng.choice(names)})

    return play


def question_in(shown: str) -> str:
    """The question of an observation."""
    found = _QUESTION.search(shown)
    if found is None:
        raise ValueError("The observation holds no question.")
    return found[1]


def unexpanded(shown: str) -> list[str]:
    """Ids of the papers that are shown as not expanded, best first."""
    _, marker, rest = shown.partition("\nNot expanded:\n")
    return _PAPER.findall(rest.partition("\nExpanded:\n")[0]) if marker else []


def _expansions(names: list[str]) -> str:
    return "\n".join(_write("expand", {"paper_id": name}) for name in names)
