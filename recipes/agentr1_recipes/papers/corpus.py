"""A corpus of papers that cite each other: keyword search, and the references of a paper.

The environment asks it; a corpus is read once in a process and shared by all episodes, which never change it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentr1_tools.search_index import BM25


@dataclass(frozen=True, slots=True)
class Paper:
    """One paper. ``references`` are ids, which need not all be in the corpus."""

    id: str
    title: str
    abstract: str = ""
    year: int | None = None
    references: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """What to look for. ``hidden`` papers do not exist for this question, such as the one it was made from."""

    id: str
    text: str
    answers: tuple[str, ...]
    hidden: tuple[str, ...] = ()


class Corpus:
    """Papers by id, with a BM25 index of titles and abstracts (k1 = 0.9, b = 0.4, English stems).

    Args:
        papers: The papers; the first of two with one id counts.
        index: Folder in which the index is kept; nowhere when ``None``.
    """

    def __init__(self, papers: Sequence[Paper], index: Path | None = None) -> None:
        self.by_id: dict[str, Paper] = {}
        for paper in papers:
            self.by_id.setdefault(paper.id, paper)
        self._papers = list(self.by_id.values())
        texts = [f"{paper.title} {paper.abstract}" for paper in self._papers]
        self._index = BM25(texts, index, k1=0.9, b=0.4, stem=True)

    def __len__(self) -> int:
        return len(self._papers)

    @property
    def papers(self) -> Sequence[Paper]:
        """All papers, in the order they were given."""
        return self._papers

    def search(self, query: str, k: int, hidden: Collection[str] = ()) -> list[Paper]:
        """At most ``k`` papers that share a word with the query, best first."""
        rows = self._index.rank(query, k + len(hidden))
        found = [self._papers[row] for row, _ in rows]
        return [paper for paper in found if paper.id not in hidden][:k]

    def references(self, paper: str, hidden: Collection[str] = ()) -> list[Paper]:
        """The papers of the corpus that a paper of the corpus cites, in the order it cites them."""
        cited = (self.by_id.get(reference) for reference in dict.fromkeys(self.by_id[paper].references))
        return [found for found in cited if found is not None and found.id not in hidden and found.id != paper]
