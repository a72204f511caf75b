"""The search index: kept on disk, never half-written, built anew for a changed corpus; vectors and fusion."""

import asyncio
import json
import os

import numpy as np
import pytest

from agentr1_core.errors import ConfigError, PluginError
from agentr1_core.testing.tool_kit import ToolKit
from agentr1_core.tool import ToolContext
from agentr1_tools import search_index
from agentr1_tools.search import Search
from agentr1_tools.search_index import BM25, Dense, Hybrid

TEXTS = ["red apples and pears", "green apples", "blue cars on a road", "an old red car"]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps({"id": i, "text": text}) for i, text in enumerate(TEXTS)))
    return path


def ask(tool, query):
    async def run():
        await tool.start()
        try:
            return (await tool.execute({"query": query}, ToolContext())).info["ids"]
        finally:
            await tool.close()

    return asyncio.run(run())


def test_an_index_is_built_once_and_found_again(corpus, tmp_path, monkeypatch):
    cache = tmp_path / "kept"
    first = ask(Search(corpus, cache=cache), "green apples")
    assert first == ("1", "0")
    (folder,) = cache.iterdir()
    monkeypatch.setattr("bm25s.BM25.index", None)  # building again would fail
    assert ask(Search(corpus, cache=cache), "green apples") == first
    assert list(cache.iterdir()) == [folder]


def test_a_changed_corpus_has_an_index_of_its_own(corpus, tmp_path):
    cache = tmp_path / "kept"
    ask(Search(corpus, cache=cache), "apples")
    corpus.write_text(json.dumps({"id": "new", "text": "apples everywhere"}) + "\n")
    os.utime(corpus, ns=(1, 1))
    assert ask(Search(corpus, cache=cache), "apples") == ("new",)
    assert len(list(cache.iterdir())) == 2


def test_a_build_that_breaks_leaves_nothing_behind(corpus, tmp_path, monkeypatch):
    cache = tmp_path / "kept"

    def breaks(self, folder):
        raise OSError("disk full")

    monkeypatch.setattr("bm25s.BM25.save", breaks)
    with pytest.raises(OSError, match="disk full"):
        ask(Search(corpus, cache=cache), "apples")
    assert [path for path in cache.rglob("*") if path.is_file()] == []
    monkeypatch.undo()
    assert ask(Search(corpus, cache=cache), "green apples") == ("1", "0")


def test_no_cache_writes_nothing(corpus, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert ask(Search(corpus, cache=""), "green apples") == ("1", "0")
    assert sorted(tmp_path.rglob("*")) == before


def colours(texts):
    """Vectors of length one that know only colours."""
    words = ("red", "green", "blue")
    vectors = np.array([[float(word in text) for word in words] + [0.1] for text in texts])
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_vectors_are_ranked_by_cosine_and_kept(tmp_path):
    dense = Dense(TEXTS, tmp_path / "vectors", colours)
    ranked = dense.rank("something red", 2)
    assert [row for row, _ in ranked] == [0, 3]
    assert ranked[0][1] == pytest.approx(1.0)

    def only_queries(texts):
        assert len(texts) == 1, "the corpus is encoded again"
        return colours(texts)

    assert Dense(TEXTS, tmp_path / "vectors", only_queries).rank("something red", 2) == ranked


def test_fusion_is_the_sum_of_reciprocal_ranks():
    """Row 3 is second by words and second by colour; row 0 is first by colour only."""
    words, vectors = BM25(TEXTS, None), Dense(TEXTS, None, colours)
    assert [row for row, _ in words.rank("red car", 4)] == [3, 0]
    assert [row for row, _ in vectors.rank("red car", 4)][:2] == [0, 3]
    fused = dict(Hybrid([words, vectors]).rank("red car", 2))
    assert fused == pytest.approx({3: 1 / 61 + 1 / 62, 0: 1 / 62 + 1 / 61})


def test_the_tool_fuses_when_told_to(corpus, monkeypatch):
    monkeypatch.setattr("agentr1_tools.search.sentence_encoder", lambda model: colours)
    assert ask(Search(corpus, mode="dense", model="colours", top_k=2), "red")[0] == "0"
    assert set(ask(Search(corpus, mode="hybrid", model="colours", top_k=2), "red car")) == {"0", "3"}


def test_a_missing_library_of_vectors_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sentence_transformers", None)
    with pytest.raises(PluginError, match=r"agentr1-tools\[dense\]"):
        search_index.sentence_encoder("some-model")


@pytest.mark.parametrize("settings", [{"mode": "tfidf"}, {"mode": "dense"}, {"model": "m"}])
def test_wrong_settings_are_named(settings):
    with pytest.raises(ConfigError, match="`mode` of the search tool"):
        Search("corpus.jsonl", **settings)


class TestSearchKeepsTheContract(ToolKit):
    @pytest.fixture(autouse=True)
    def with_corpus(self, corpus):
        self.corpus = corpus

    def make_tool(self):
        return Search(self.corpus)

    def good_calls(self):
        return [{"query": "apples"}, {"query": ""}, {"query": "\u0000 OR *"}]


def test_stems_are_compared_when_asked_for():
    texts = ["the horses galloped", "a horse", "sheep"]
    assert [row for row, _ in BM25(texts, None).rank("horse", 3)] == [1]
    stemmed = BM25(texts, None, k1=0.9, b=0.4, stem=True)
    assert {row for row, _ in stemmed.rank("horse galloping", 3)} == {0, 1}
    assert stemmed.rank("horse galloping", 3)[0][0] == 0
