"""The search tool of multi-hop questions: over the recipe's own world, the passages of each question, or a corpus.

Run files name it ``passages``; the model calls it ``search``. A corpus may be a JSON Lines file, which is kept in
memory, or a folder made by ``agentr1_recipes.multihop.wiki_index``, which stays on disk however large it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentr1_core.errors import ConfigError, DataError
from agentr1_core.threads import call_in_thread
from agentr1_core.tool import ToolContext, ToolError, ToolResponse
from agentr1_recipes.multihop.wiki_index import WikiIndex
from agentr1_recipes.multihop.world import CORPUS
from agentr1_tools.search import Passage, Search, as_response
from agentr1_tools.search_index import BM25


class PassageSearch(Search):
    """Finds passages by keywords.

    Args:
        corpus: ``own`` for the world of the recipe; ``row`` for the passages that come with each question; a JSON
            Lines file of ``id``, ``title`` and ``text``; or the folder of an index.
        top_k: How many passages are shown at most.
        show: ``json`` as Agent-R1's tool, or ``list``.
        settings: Others of the tool ``search``, for files.
    """

    def __init__(self, corpus: str = "own", *, top_k: int = 5, show: str = "json", **settings: Any) -> None:
        path = CORPUS if corpus == "own" else Path(corpus)
        super().__init__(path, top_k=top_k, show=show, **settings)
        self.by_row = corpus == "row"
        self._wiki: WikiIndex | None = None
        if settings.keys() - {"tool_name"} and (self.by_row or path.is_dir()):
            raise ConfigError(
                f"`corpus: {corpus}` takes no {', '.join(sorted(settings.keys() - {'tool_name'}))}.",
                "Remove it, or give a JSON Lines file as `corpus`.",
            )

    async def start(self) -> None:
        if self.corpus.is_dir() and not self.by_row:
            if self._wiki is None:
                self._wiki = await call_in_thread(WikiIndex, self.corpus)
        elif not self.by_row:
            await super().start()

    async def close(self) -> None:
        self._wiki = None
        await super().close()

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResponse:
        if self.by_row:
            return await call_in_thread(self._search_row, args["query"], ctx)
        if self._wiki is not None:
            return as_response(await call_in_thread(self._wiki.search, args["query"], self.top_k), self.show)
        if self.corpus.is_dir():
            raise ToolError("The search index is not open.")
        return await super().execute(args, ctx)

    def _search_row(self, query: str, ctx: ToolContext) -> ToolResponse:
        given = ctx.task.get("passages")
        if not given:
            raise DataError(
                "The row has no passages to search in.",
                "Take data that brings them (HotpotQA's distractor setting, MuSiQue), or name a `corpus`.",
            )
        passages = [Passage(str(each["id"]), str(each["title"]), str(each["text"])) for each in given]
        # Ten passages or so: an index for each call is quicker than keeping one for each episode.
        index = BM25([f"{passage.title} {passage.text}" for passage in passages], None)
        ranked = index.rank(query, self.top_k)
        return as_response([(passages[row], score) for row, score in ranked], self.show)
