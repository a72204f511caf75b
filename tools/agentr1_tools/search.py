"""A search tool over a local corpus, ranked by BM25, by sentence vectors, or by both.

It reads a JSON Lines file of passages and its index once, when it starts, and serves all episodes from memory. It
never touches the network, but for a ``model`` that is a hub id and not a folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr1_core.errors import ConfigError, DataError
from agentr1_core.threads import call_in_thread
from agentr1_core.tool import BaseTool, ToolContext, ToolError, ToolResponse
from agentr1_tools.search_index import BM25, Dense, Hybrid, Ranker, index_folder, sentence_encoder, user_cache

#: How found passages are shown.
SHOWN = ("list", "json")


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
        mode: ``bm25``, ``dense`` or ``hybrid`` (both, fused by their ranks).
        model: Folder or hub id of the ``sentence-transformers`` model; for ``dense`` and ``hybrid``.
        cache: Folder in which indexes are kept; the user's cache folder when unset, none when empty.
        show: ``list`` for numbered passages, or ``json`` for ``{"results": ["title text", ...]}``, which Agent-R1's
            search tool shows.
        tool_name: What the model calls it.

    Raises:
        ConfigError: There is no such mode or way to show, or the mode lacks its model.
        DataError: ``top_k`` is not positive.
    """

    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {"query": {"type": "string", "description": "The keywords to look for."}},
        "required": ["query"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        corpus: str | Path,
        *,
        top_k: int = 3,
        mode: str = "bm25",
        model: str | None = None,
        cache: str | Path | None = None,
        show: str = "list",
        tool_name: str = "search",
    ) -> None:
        if top_k < 1:
            raise DataError(f"`top_k` of the search tool is {top_k}.", "Show at least one passage.")
        if mode not in ("bm25", "dense", "hybrid"):
            raise ConfigError(f"`mode` of the search tool is '{mode}'.", "Choose one of: bm25, dense, hybrid.")
        if (mode == "bm25") != (model is None):
            raise ConfigError(
                f"`mode` of the search tool is '{mode}' and `model` is {'not ' if model is None else ''}set.",
                "Set `model` for dense and hybrid, and only for them.",
            )
        if show not in SHOWN:
            raise ConfigError(f"`show` of the search tool is '{show}'.", f"Choose one of: {', '.join(SHOWN)}.")
        self.name = tool_name
        self.description = "Search a collection of passages by keywords; the best matches are shown first."
        self.corpus = Path(corpus)
        self.top_k = top_k
        self.mode = mode
        self.model = model
        self.show = show
        self.cache = user_cache() if cache is None else Path(cache) if str(cache) else None
        self._passages: list[Passage] = []
        self._ranker: Ranker | None = None

    async def start(self) -> None:
        """Read the corpus and its index, which is built when there is none; a second call does nothing."""
        if self._ranker is None:
            self._passages, self._ranker = await call_in_thread(self._build)

    def _build(self) -> tuple[list[Passage], Ranker]:
        passages = read_corpus(self.corpus)
        texts = [f"{passage.title} {passage.text}" for passage in passages]
        folder = None if self.cache is None else index_folder(self.cache, self.corpus)
        rankers: list[Ranker] = []
        if self.mode != "dense":
            rankers.append(BM25(texts, folder))
        if self.model is not None:
            vectors = None if self.cache is None else index_folder(self.cache, self.corpus, self.model)
            rankers.append(Dense(texts, vectors, sentence_encoder(self.model)))
        return passages, rankers[0] if len(rankers) == 1 else Hybrid(rankers)

    async def close(self) -> None:
        """Free the index."""
        self._passages, self._ranker = [], None

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResponse:
        if self._ranker is None:
            raise ToolError("The search index is not loaded.")
        passages = self._passages
        ranked = await call_in_thread(self._ranker.rank, args["query"], self.top_k)
        return as_response([(passages[row], score) for row, score in ranked], self.show)


def as_response(hits: Sequence[tuple[Passage, float]], show: str) -> ToolResponse:
    """What the model is shown of ranked passages; their ids and scores are in ``info``.

    Args:
        hits: Passages with their scores, best first.
        show: One of ``SHOWN``.
    """
    info = {"ids": tuple(passage.id for passage, _ in hits), "scores": tuple(score for _, score in hits)}
    if show == "json":
        results = [f"{passage.title} {passage.text}".strip() for passage, _ in hits]
        return ToolResponse(json.dumps({"results": results}, ensure_ascii=False), info=info)
    if not hits:
        return ToolResponse("No passage matches.", info=info)
    shown = [f"[{rank}] {passage.title}\n{passage.text}" for rank, (passage, _) in enumerate(hits, start=1)]
    return ToolResponse("\n\n".join(shown), info=info)
