"""Papers and questions from files: JSON Lines of papers, and of questions with the ids of their answers.

Papers may be the works that OpenAlex serves (``referenced_works``, ``abstract_inverted_index``) or plain rows of
``id``, ``title``, ``abstract``, ``year`` and ``references``. Questions are rows of ``question`` and ``answer_ids`` (or
PaSa's ``answer_arxiv_id``). A corpus without questions makes its own: a paper's title asks for what the paper cites.
"""

from __future__ import annotations

import functools
import gzip
import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from agentr1_core.errors import DataError
from agentr1_recipes.papers.corpus import Corpus, Paper, Question
from agentr1_recipes.papers.invented import invent
from agentr1_tools.search_index import index_folder, user_cache

_MEND = "Name a folder that holds papers.jsonl (or papers.jsonl.gz) and, for its own questions, queries.jsonl."
_ONE_AT_A_TIME = threading.Lock()


def open_corpus(folder: str | None) -> Corpus:
    """The corpus of a folder, or the invented one for ``None``; read once in a process.

    Raises:
        DataError: A file is missing, or a line of it is malformed; the message names the line.
    """
    with _ONE_AT_A_TIME:  # many episodes begin at once
        return _open(folder)


@functools.lru_cache(maxsize=4)
def _open(folder: str | None) -> Corpus:
    if folder is None:
        return Corpus(invent().papers)
    file = _file(Path(folder), "papers.jsonl")
    papers = [read_paper(row, where) for row, where in _rows(file)]
    return Corpus(papers, index_folder(user_cache(), file, "papers", "k1=0.9", "b=0.4", "stem"))


def read_questions(folder: str | Path) -> list[Question]:
    """The questions of ``queries.jsonl``.

    Raises:
        DataError: The file is missing, or a line of it is malformed.
    """
    file = _file(Path(folder), "queries.jsonl")
    return [read_question(row, where) for row, where in _rows(file)]


def citation_questions(corpus: Corpus, fewest: int = 5, most: int = 60) -> list[Question]:
    """One question for each paper that cites ``fewest`` to ``most`` papers of the corpus: its title asks for them.

    The paper itself is hidden, since expanding it would give all answers at once.
    """
    found = []
    for paper in corpus.papers:
        cited = tuple(reference.id for reference in corpus.references(paper.id))
        if fewest <= len(cited) <= most and paper.title:
            found.append(Question(f"references of {paper.id}", paper.title, cited, (paper.id,)))
    return found


def read_paper(row: Mapping[str, Any], where: str) -> Paper:
    """A paper from a row, plain or as OpenAlex gives it.

    Raises:
        DataError: It has no id.
    """
    if not row.get("id"):
        raise DataError(f"{where}: a paper without `id`.", "Write id, title, abstract and references.")
    abstract = row.get("abstract")
    if abstract is None:
        abstract = _uninvert(row.get("abstract_inverted_index") or {})
    references = next((row[key] for key in ("references", "refs_in", "referenced_works") if row.get(key)), ())
    return Paper(
        id=_short(row["id"]),
        title=str(row.get("title") or ""),
        abstract=str(abstract),
        year=row.get("year", row.get("publication_year")),
        references=tuple(_short(reference) for reference in references),
    )


def read_question(row: Mapping[str, Any], where: str) -> Question:
    """A question from a row.

    Raises:
        DataError: It has no text or no answers.
    """
    answers = row.get("answer_ids") or row.get("answer_arxiv_id")
    if not row.get("question") or not answers:
        raise DataError(f"{where}: a row without `question` or `answer_ids`.", "Write both; answer_ids is a list.")
    return Question(str(row.get("qid", where)), str(row["question"]), tuple(_short(answer) for answer in answers))


def _short(name: Any) -> str:
    """OpenAlex names things by web address; the last part is the id."""
    return str(name).rsplit("/", 1)[-1]


def _uninvert(places: Mapping[str, list[int]]) -> str:
    """OpenAlex keeps an abstract as each word's places."""
    words = sorted((place, word) for word, where in places.items() for place in where)
    return " ".join(word for _, word in words)


def _file(folder: Path, name: str) -> Path:
    for file in (folder / name, folder / f"{name}.gz"):
        if file.is_file():
            return file
    raise DataError(f"There is no {name} in '{folder}'.", _MEND)


def _rows(file: Path) -> Iterator[tuple[dict[str, Any], str]]:
    with (gzip.open if file.suffix == ".gz" else open)(file, "rt", encoding="utf-8") as lines:
        for number, line in enumerate(lines, start=1):
            where = f"{file.name} line {number}"
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except json.JSONDecodeError as error:
                raise DataError(f"{where} is not JSON: {error.msg}.", "Write one object in each line.") from error
            if not isinstance(row, dict):
                raise DataError(f"{where} is not an object.", "Write one object in each line.")
            yield row, where
