"""What an episode has found so far: papers with their scores, and which of them were expanded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from agentr1_recipes.papers.corpus import Paper


@dataclass(slots=True)
class Found:
    """One paper of the pool."""

    paper: Paper
    #: The selector's, from 0 to 1; it ranks the pool.
    score: float
    #: Place in the order of finding; earlier goes first among equals.
    order: int
    expanded: bool = False


class Pool:
    """All papers found in one episode."""

    def __init__(self) -> None:
        self._found: dict[str, Found] = {}

    def __len__(self) -> int:
        return len(self._found)

    def get(self, paper_id: str) -> Found | None:
        """The paper of that id, if it was found."""
        return self._found.get(paper_id)

    def new(self, papers: Iterable[Paper]) -> list[Paper]:
        """Those of the papers that are not in the pool."""
        return [paper for paper in papers if paper.id not in self._found]

    def add(self, paper: Paper, score: float) -> None:
        """Take in a paper that is new."""
        self._found[paper.id] = Found(paper, score, len(self._found))

    def ranked(self) -> list[Found]:
        """All of them, best first."""
        return sorted(self._found.values(), key=lambda found: (-found.score, found.order))

    def halves(self, size: int) -> tuple[list[Found], list[Found]]:
        """The best that were not expanded and the best that were, ``size`` together at most.

        Each has half of the places; what one does not need, the other may use.
        """
        ranked = self.ranked()
        fresh = [found for found in ranked if not found.expanded]
        done = [found for found in ranked if found.expanded]
        half = size // 2
        n_done = min(len(done), max(half, size - len(fresh)))
        return fresh[: size - n_done], done[:n_done]
