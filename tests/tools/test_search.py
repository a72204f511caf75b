"""The search tool on a small corpus, and what it says about a bad one."""

from __future__ import annotations

import asyncio
import json
import math
from pathlib import Path
from typing import Any

import pytest

from agentr1_core.errors import ConfigError, DataError
from agentr1_core.tool import ToolContext, ToolOutcome, ToolResult, call_tool
from agentr1_tools.search import Search, read_corpus

PASSAGES = [
    {"id": "p1", "title": "Ada Lovelace", "text": "She wrote the first programme for the Analytical Engine."},
    {"id": "p2", "title": "Charles Babbage", "text": "He designed the Analytical Engine and the Difference Engine."},
    {"id": 3, "text": "Marie Curie discovered polonium and radium."},
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps(passage) for passage in PASSAGES) + "\n\n", encoding="utf-8")
    return path


def ask(tool: Search, *queries: str) -> list[ToolResult]:
    async def run() -> list[ToolResult]:
        await tool.start()
        try:
            calls = (call_tool({"search": tool}, "search", {"query": query}, ToolContext()) for query in queries)
            return list(await asyncio.gather(*calls))
        finally:
            await tool.close()

    return asyncio.run(run())


def test_the_best_passage_comes_first(corpus: Path) -> None:
    (result,) = ask(Search(corpus), "Who designed the Difference Engine?")

    assert result.response.info["ids"] == ("p2", "p1")
    assert result.response.text == (
        "[1] Charles Babbage\nHe designed the Analytical Engine and the Difference Engine.\n\n"
        "[2] Ada Lovelace\nShe wrote the first programme for the Analytical Engine."
    )


def test_passages_as_json(corpus: Path) -> None:
    found, nothing = ask(Search(corpus, show="json"), "Who designed the Difference Engine?", "zebra")

    assert json.loads(found.response.text) == {
        "results": [
            "Charles Babbage He designed the Analytical Engine and the Difference Engine.",
            "Ada Lovelace She wrote the first programme for the Analytical Engine.",
        ]
    }
    assert found.response.info["ids"] == ("p2", "p1")
    assert json.loads(nothing.response.text) == {"results": []}
    with pytest.raises(ConfigError, match="`show` of the search tool is 'table'"):
        Search(corpus, show="table")


def test_scores_are_bm25(corpus: Path) -> None:
    """Lucene's BM25, k1 = 1.5 and b = 0.75, written out for one word found in one passage."""
    (result,) = ask(Search(corpus), "polonium")

    words = [len(each) for each in _indexed(corpus)]
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    length_norm = 1 - 0.75 + 0.75 * words[2] / (sum(words) / 3)
    assert result.response.info["scores"] == pytest.approx([idf / (1 + 1.5 * length_norm)], rel=1e-5)


def _indexed(corpus: Path) -> list[list[str]]:
    from agentr1_tools.search_index import _words

    return _words([f"{passage.title} {passage.text}" for passage in read_corpus(corpus)])


def test_top_k_limits_what_is_shown_and_may_exceed_the_corpus(corpus: Path) -> None:
    assert len(ask(Search(corpus, top_k=1), "engine")[0].response.info["ids"]) == 1
    assert len(ask(Search(corpus, top_k=50), "engine")[0].response.info["ids"]) == 2


@pytest.mark.parametrize("query", ["", "the of and", "zebra", "???"])
def test_a_query_without_a_known_word_matches_nothing(corpus: Path, query: str) -> None:
    (result,) = ask(Search(corpus), query)

    assert (result.outcome, result.response.text) == (ToolOutcome.OK, "No passage matches.")


def test_many_searches_at_once_answer_each_their_own(corpus: Path) -> None:
    results = ask(Search(corpus, top_k=1), *["radium", "programme", "difference"] * 20)

    assert [result.response.info["ids"] for result in results] == [("3",), ("p1",), ("p2",)] * 20


def test_a_tool_that_was_not_started_says_so(corpus: Path) -> None:
    result = asyncio.run(call_tool({"search": Search(corpus)}, "search", {"query": "x"}, ToolContext()))

    assert result.outcome is ToolOutcome.FAILED
    assert "not loaded" in result.response.text


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is empty"),
        ('{"id": 1, "text": "a"}\nnonsense\n', "line 2: not JSON"),
        ('{"id": 1}\n', "line 1: `text` is missing"),
        ('{"text": "a"}\n', "line 1: `id` is missing"),
        ("[1, 2]\n", "line 1: not an object"),
    ],
)
def test_a_bad_corpus_names_the_line(tmp_path: Path, content: str, says: str) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_text(content, encoding="utf-8")

    with pytest.raises(DataError, match=says):
        ask(Search(path), "anything")


def test_a_missing_corpus_and_a_senseless_top_k_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl does not exist"):
        read_corpus(tmp_path / "nowhere.jsonl")
    arguments: dict[str, Any] = {"corpus": tmp_path, "top_k": 0}
    with pytest.raises(DataError, match="`top_k` of the search tool is 0"):
        Search(**arguments)
