"""A search tool over a local corpus, ranked by BM25 (Robertson and Zaragoza 2009, as ``bm25s`` implements it).

It reads a JSON Lines file of passages once, when it starts, and serves all episodes from memory. It never
touches the network.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr1_core.errors import DataError
from agentr1_core.tool import BaseTool, ToolContext, ToolError, ToolResponse

if TYPE_CHECKING:
    import bm25s


@dataclass(frozen=True, slots=True)
class Passage:
    """One entry of the corpus."""

    id: str
    title: str
    text: str


def read_corpus(path: Path) -> list[Passage]:
    """The passages of a JSON Lines file; each line is an object with ``id``, ``text`` and optionally ``title``.

    Raises:
        DataError: The file is missing or empty, or a line is malformed; the message names the line.
    """
    if not path.is_file():
        raise DataError(f"The search corpus {path} does not exist.", "Give the path of a .jsonl file as `corpus`.")
    passages = []
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                passages.append(_passage(line, f"{path}, line {number}"))
    if not passages:
        raise DataError(f"The search corpus {path} is empty.", "Each line is an object with `id` and `text`.")
    return passages


def _passage(line: str, where: str) -> Passage:
    mend = 'Write each line as {"id": "...", "title": "...", "text": "..."}; `title` may be left out.'
    try:
        entry = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON ({error}).", mend) from error
    if not isinstance(entry, dict):
        raise DataError(f"{where}: not an object.", mend)
    for key in ("id", "text"):
        if key not in entry:
            raise DataError(f"{where}: `{key}` is missing.", mend)
    return Passage(str(entry["id"]), str(entry.get("title") or ""), str(entry["text"]))


class Search(BaseTool):
    """Finds the passages of a corpus that fit a query best.

    Args:
        corpus: A JSON Lines file; each line is an object with ``id``, ``text`` and optionally ``title``.
        top_k: How many passages are shown at most.
    """

    name = "search"
    description = "Search a collection of passages by keywords; the best matches are shown first."
    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {"query": {"type": "string", "description": "The keywords to look for."}},
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(self, corpus: str | Path, *, top_k: int = 3) -> None:
        if top_k < 1:
            raise DataError(f"`top_k` of the search tool is {top_k}.", "Show at least one passage.")
        self.corpus = Path(corpus)
        self.top_k = top_k
        self._passages: list[Passage] = []
        self._index: bm25s.BM25 | None = None

    async def start(self) -> None:
        """Read and index the corpus; a second call does nothing."""
        if self._index is None:
            self._passages, self._index = await asyncio.to_thread(_build, self.corpus)

    async def close(self) -> None:
        """Free the index."""
        self._passages, self._index = [], None

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResponse:
        if self._index is None:
            raise ToolError("The search index is not loaded.")
        hits = await asyncio.to_thread(self._find, self._index, args["query"])
        if not hits:
            return ToolResponse("No passage matches.", info={"ids": (), "scores": ()})
        shown = [f"[{rank}] {passage.title}\n{passage.text}" for rank, (passage, _) in enumerate(hits, start=1)]
        return ToolResponse(
            "\n\n".join(shown),
            info={"ids": tuple(passage.id for passage, _ in hits), "scores": tuple(score for _, score in hits)},
        )

    def _find(self, index: bm25s.BM25, query: str) -> list[tuple[Passage, float]]:
        """The best passages with their BM25 scores, those that share no word with the query left out."""
        words = [word for word in _words([query])[0] if word in index.vocab_dict]
        if not words:
            return []
        found, scores = index.retrieve([words], k=min(self.top_k, len(self._passages)), show_progress=False)
        return [
            (self._passages[int(row)], float(score))
            for row, score in zip(found[0], scores[0], strict=True)
            if score > 0
        ]


def _build(path: Path) -> tuple[list[Passage], bm25s.BM25]:
    import bm25s

    passages = read_corpus(path)
    index = bm25s.BM25()
    index.index(_words([f"{passage.title} {passage.text}" for passage in passages]), show_progress=False)
    return passages, index


def _words(texts: list[str]) -> list[list[str]]:
    import bm25s

    words: list[list[str]] = bm25s.tokenize(
        texts, token_pattern=r"(?u)\b\w+\b", stopwords="en", return_ids=False, show_progress=False
    )
    return words
