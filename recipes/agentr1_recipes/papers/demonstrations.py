"""Deliberately poor demonstrations on the invented corpus: how calls are written, and little of when to make which.

They teach a fresh model the language of the task and leave plenty to learn; the recipe warm-starts on them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from agentr1_core.tool_format import HermesFormat
from agentr1_recipes.papers.corpus import Corpus, Question
from agentr1_recipes.papers.env import SPECS, SYSTEM, show
from agentr1_recipes.papers.oracle import STOP
from agentr1_recipes.papers.pool import Pool
from agentr1_recipes.papers.selector import make_selector

_TOOL_COLUMN = [{"type": "function", "function": spec} for spec in SPECS]
_write = HermesFormat().write


def demonstrate(
    corpus: Corpus, question: Question, rng: random.Random, pool_size: int, search_size: int
) -> dict[str, Any]:
    """One row of ``prompt``, ``completion`` and ``tools`` at a random moment of a random episode."""
    history: list[str] = []
    pool = Pool()
    selector = make_selector("lexical", corpus, "selector")

    def take_in(papers: Sequence[Any], said: str) -> None:
        new = pool.new(papers)
        for paper in new:
            pool.add(paper, selector.score(question.text, paper))
        history.append(f"{said}: {len(new)} new")

    if rng.random() < 0.7:
        query = _query(question, rng)
        take_in(corpus.search(query, search_size, question.hidden), f"search {query}")
        for found in rng.sample(pool.ranked(), min(len(pool), rng.choice([0, 0, 1, 2]))):
            found.expanded = True
            take_in(corpus.references(found.paper.id, question.hidden), f"expand {found.paper.id}")
    said = _say(question, pool, pool_size, rng)
    return {
        "prompt": [SYSTEM, show(question.text, history, pool, pool_size)],
        "completion": [{"role": "assistant", "content": said}],
        "tools": _TOOL_COLUMN,
    }


def _say(question: Question, pool: Pool, pool_size: int, rng: random.Random) -> str:
    fresh, done = pool.halves(pool_size)
    shown = [*fresh, *done]
    kind = rng.random()
    if kind < 0.15:
        return STOP
    if not shown or kind < 0.45:
        return _write("search", {"query": _query(question, rng)})
    # Any paper that is shown, expanded already or not, and one or two at a time.
    names = [rng.choice(shown).paper.id for _ in range(rng.choice([1, 1, 2]))]
    return "\n".join(_write("expand", {"paper_id": name}) for name in names)


def _query(question: Question, rng: random.Random) -> str:
    """Words of the question, seldom all that matter."""
    words = question.text.rstrip("?").split()[-4:]
    return " ".join(word for word in words if rng.random() < 0.6) or words[-1]
