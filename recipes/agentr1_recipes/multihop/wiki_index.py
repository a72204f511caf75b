"""An index of millions of passages on disk, built once and shared by all processes that open it.

    python -m agentr1_recipes.multihop.wiki_index PASSAGES FOLDER

builds it from JSON Lines files (plain, .gz or .bz2; a folder of them counts too) whose lines have ``title`` and
``text``, such as HotpotQA's dump of introductory paragraphs, or ``contents`` with the title in its first line, such as
the corpora of Search-R1 and FlashRAG. The engine is tantivy: BM25 (k1 = 1.2, b = 0.75) over stemmed words of both.
"""

from __future__ import annotations

import bz2
import gzip
import json
import re
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentr1_core.errors import AgentR1Error, DataError, PluginError
from agentr1_tools.search import Passage

_ENDINGS = (".jsonl", ".json", ".jsonl.gz", ".jsonl.bz2", ".bz2")
_FIELDS = ["title", "text"]
#: Bytes that tantivy may keep in memory before it writes.
_HEAP = 256 * 2**20


class WikiIndex:
    """An index that was built, open for searching.

    Args:
        folder: What ``build`` wrote.

    Raises:
        DataError: It is no index.
        PluginError: tantivy is not installed.
    """

    def __init__(self, folder: str | Path) -> None:
        tantivy = _tantivy()
        try:
            self._index = tantivy.Index.open(str(folder))
        except ValueError as error:
            raise DataError(
                f"The folder {folder} holds no search index: {error}",
                "Build one: python -m agentr1_recipes.multihop.wiki_index PASSAGES FOLDER",
            ) from error
        self._searcher = self._index.searcher()

    def __len__(self) -> int:
        return int(self._searcher.num_docs)

    def search(self, query: str, k: int) -> list[tuple[Passage, float]]:
        """At most ``k`` passages with their scores, best first."""
        words = " ".join(re.findall(r"\w+", query.lower()))  # no operators of tantivy's query language
        if not words:
            return []
        parsed = self._index.parse_query(words, _FIELDS)
        found = ((self._searcher.doc(address), score) for score, address in self._searcher.search(parsed, k).hits)
        return [(Passage(doc["id"][0], doc["title"][0], doc["text"][0]), float(score)) for doc, score in found]


def build(passages: Iterable[Passage], folder: str | Path) -> int:
    """Write an index and return the number of its passages; nothing is left behind when it fails.

    Raises:
        DataError: The folder exists, or there are no passages.
        PluginError: tantivy is not installed.
    """
    tantivy = _tantivy()
    folder = Path(folder)
    if folder.exists():
        raise DataError(f"The folder {folder} exists.", "Remove it, or name another.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=".unfinished-", dir=folder.parent))
    try:
        n = _write(tantivy, passages, unfinished)
        unfinished.rename(folder)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return n


def _write(tantivy: Any, passages: Iterable[Passage], folder: Path) -> int:
    schema = tantivy.SchemaBuilder().add_text_field("id", stored=True, tokenizer_name="raw")
    for field in _FIELDS:
        schema = schema.add_text_field(field, stored=True, tokenizer_name="en_stem")
    writer = tantivy.Index(schema.build(), path=str(folder)).writer(heap_size=_HEAP, num_threads=1)
    n = 0
    try:
        for passage in passages:
            writer.add_document(tantivy.Document(id=passage.id, title=passage.title, text=passage.text))
            n += 1
        if n == 0:
            raise DataError("There are no passages.", "Name JSON Lines files with `title` and `text`.")
        writer.commit()
    finally:
        writer.wait_merging_threads()  # its threads write to the folder until then
    return n


def read_passages(path: str | Path) -> Iterator[Passage]:
    """The passages of a file, or of all files under a folder in the order of their names.

    Raises:
        DataError: There is no such file, or a line is malformed; the message names it.
    """
    path = Path(path)
    files = sorted(each for each in path.rglob("*") if each.name.endswith(_ENDINGS)) if path.is_dir() else [path]
    if not all(file.is_file() for file in files) or not files:
        raise DataError(f"There are no passages at {path}.", f"Files end in {', '.join(_ENDINGS)}.")
    number = 0
    for file in files:
        with _open(file) as lines:
            for at, line in enumerate(lines, 1):
                if line.strip():
                    yield _passage(line, f"{file}, line {at}", number)
                    number += 1


def _open(file: Path) -> Any:
    opener = {".gz": gzip.open, ".bz2": bz2.open}.get(file.suffix, open)
    return opener(file, "rt", encoding="utf-8")


def _passage(line: str, where: str, number: int) -> Passage:
    try:
        row = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: not JSON ({error}).", "Give one JSON object in each line.") from error
    if not isinstance(row, Mapping):
        raise DataError(f"{where}: not an object.", "Give one JSON object in each line.")
    title, text = row.get("title"), row.get("text")
    if text is None and isinstance(row.get("contents"), str):
        title, _, text = row["contents"].partition("\n")
        title = title.strip('"')
    if isinstance(text, list):  # sentences, as in HotpotQA's dump
        text = " ".join(str(sentence).strip() for sentence in text)
    if not isinstance(text, str):
        raise DataError(f"{where}: there is neither `text` nor `contents`.", "Give each line `title` and `text`.")
    return Passage(str(row.get("id", number)), str(title or ""), text)


def _tantivy() -> Any:
    try:
        import tantivy
    except ImportError as error:
        raise PluginError(
            f"An index on disk needs tantivy: {error}.", "pip install 'agentr1-recipes[multihop]'"
        ) from error
    return tantivy


def main(arguments: list[str]) -> int:
    """Build an index; 0 if it was written."""
    if len(arguments) != 2:
        print("usage: python -m agentr1_recipes.multihop.wiki_index PASSAGES FOLDER", file=sys.stderr)
        return 2
    try:
        n = build(read_passages(arguments[0]), arguments[1])
    except AgentR1Error as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{n} passages in {arguments[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
