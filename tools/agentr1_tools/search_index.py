"""Ranking passages: BM25 kept on disk, dense vectors, and both together. The search tool builds one when it starts.

An index is built once and found again by the corpus file's path, size and time of change; a half-written one is never
seen by another process.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from agentr1_core.errors import PluginError

#: One ranked passage: its row in the corpus and its score.
Hit = tuple[int, float]


class Ranker(Protocol):
    """Ranks the rows of a corpus."""

    def rank(self, query: str, k: int) -> list[Hit]:
        """At most ``k`` rows, best first; those that do not match at all are left out."""


class BM25:
    """BM25 (Robertson and Zaragoza 2009) in Lucene's variant, as ``bm25s`` implements it.

    Args:
        texts: The passages.
        folder: Where the index is kept; nowhere when ``None``. Other settings need another folder.
        k1: How soon a repeated word stops counting.
        b: How much long passages are held back, from 0 to 1.
        stem: Compare the stems of English words (Porter 2).

    Raises:
        PluginError: ``stem`` is asked for and PyStemmer is not installed.
    """

    def __init__(
        self, texts: Sequence[str], folder: Path | None, *, k1: float = 1.5, b: float = 0.75, stem: bool = False
    ) -> None:
        import bm25s

        self._stem = _english_stemmer() if stem else None

        def index() -> Any:
            built = bm25s.BM25(k1=k1, b=b)
            built.index(_words(texts, self._stem), show_progress=_watched())
            return built

        def build(into: Path) -> None:
            index().save(str(into))

        if folder is None:
            self._index = index()
        else:
            self._index = bm25s.BM25.load(str(_once(folder / "bm25", build)), mmap=True)
        self._n = len(texts)

    def rank(self, query: str, k: int) -> list[Hit]:
        words = [word for word in _words([query], self._stem)[0] if word in self._index.vocab_dict]
        if not words:
            return []
        found, scores = self._index.retrieve([words], k=min(k, self._n), show_progress=False)
        return [(int(row), float(score)) for row, score in zip(found[0], scores[0], strict=True) if score > 0]


class Dense:
    """Cosine similarity of sentence vectors, compared with every passage.

    Args:
        texts: The passages.
        folder: Where the vectors are kept; nowhere when ``None``.
        encode: Texts to vectors of length one, ``(n_texts, width)``.
    """

    def __init__(self, texts: Sequence[str], folder: Path | None, encode: Callable[[Sequence[str]], Any]) -> None:
        self._encode = encode

        def build(into: Path) -> None:
            np.save(into / "vectors.npy", np.asarray(encode(texts), dtype=np.float32))

        if folder is None:
            self._vectors = np.asarray(encode(texts), dtype=np.float32)
        else:
            self._vectors = np.load(_once(folder, build) / "vectors.npy", mmap_mode="r")

    def rank(self, query: str, k: int) -> list[Hit]:
        scores = self._vectors @ np.asarray(self._encode([query]), dtype=np.float32)[0]
        best = np.argsort(-scores, kind="stable")[:k]
        return [(int(row), float(scores[row])) for row in best]


class Hybrid:
    """Reciprocal rank fusion of several rankers (Cormack, Clarke and Büttcher 2009): the sum of 1 / (60 + rank)."""

    def __init__(self, rankers: Sequence[Ranker], depth: int = 100) -> None:
        self._rankers = list(rankers)
        self._depth = depth

    def rank(self, query: str, k: int) -> list[Hit]:
        scores: dict[int, float] = {}
        for ranker in self._rankers:
            for position, (row, _) in enumerate(ranker.rank(query, max(k, self._depth)), start=1):
                scores[row] = scores.get(row, 0.0) + 1.0 / (60 + position)
        return sorted(scores.items(), key=lambda hit: (-hit[1], hit[0]))[:k]


def sentence_encoder(model: str) -> Callable[[Sequence[str]], Any]:
    """Vectors by a model of ``sentence-transformers``, a folder or a hub id.

    Raises:
        PluginError: The library is not installed.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise PluginError(
            f"Dense search cannot import sentence-transformers: {error}.", "pip install 'agentr1-tools[dense]'"
        ) from error
    loaded = SentenceTransformer(model)
    return lambda texts: loaded.encode(
        list(texts), normalize_embeddings=True, show_progress_bar=_watched() and len(texts) > 1
    )


def index_folder(cache: Path, corpus: Path, *settings: str) -> Path:
    """Where the index of a corpus is kept: another file, or a changed one, has another folder."""
    facts = corpus.stat()
    key = json.dumps([str(corpus.resolve()), facts.st_size, facts.st_mtime_ns, *settings, "1"])
    return cache / hashlib.sha256(key.encode()).hexdigest()[:24]


def user_cache() -> Path:
    """The folder for what can be made again: ``$XDG_CACHE_HOME/agentr1/search``, under ``~/.cache`` when unset."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentr1" / "search"


def _once(folder: Path, build: Callable[[Path], None]) -> Path:
    """The folder, built beside and moved into place when it is not there; whoever is first wins."""
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
    try:
        build(unfinished)
        try:
            unfinished.rename(folder)
        except OSError:
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return folder


def _english_stemmer() -> Callable[[list[str]], list[str]]:
    try:
        from Stemmer import Stemmer
    except ImportError as error:
        raise PluginError(f"Stems need PyStemmer: {error}.", "pip install 'agentr1-tools[stem]'") from error
    stems: Callable[[list[str]], list[str]] = Stemmer("english").stemWords
    return stems


def _words(texts: Sequence[str], stem: Callable[[list[str]], list[str]] | None = None) -> list[list[str]]:
    import bm25s

    words: list[list[str]] = bm25s.tokenize(
        list(texts),
        token_pattern=r"(?u)\b\w+\b",
        stopwords="en",
        return_ids=False,
        show_progress=_watched() and len(texts) > 1,
    )
    return words if stem is None else [stem(found) for found in words]


def _watched() -> bool:
    """Progress bars are for people."""
    return sys.stderr.isatty()
