"""Multi-hop questions as tasks: HotpotQA, 2WikiMultihopQA, MuSiQue, and what Agent-R1, FlashRAG and IRCoT made of them.

The recipe calls ``load``. Formats are told apart by their columns, so local files and copies on the hub load alike;
rows that have a ``prompt`` already are taken as they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentr1_core.dataset import load_rows
from agentr1_core.errors import DataError
from agentr1_core.task import Task

#: Shown first unless the data or the run file has something else.
SYSTEM_PROMPT = "Answer the question. Search for one fact at a time. Give the answer between <answer> and </answer>."
#: Names of the held-out split in the data sets there are; their test splits have no answers.
_SPLITS: Mapping[str, tuple[str, ...]] = {"train": ("train",), "eval": ("eval", "validation", "dev", "test")}


def load(source: str | Path, split: str, system_prompt: str | None = SYSTEM_PROMPT) -> list[Task]:
    """All tasks of a split; questions that MuSiQue marks as unanswerable are left out.

    Args:
        source: A hub id such as ``hotpotqa/hotpot_qa:distractor``, a file, or a folder with a file for each split.
        split: ``train``, ``eval`` (the data set's validation split), or another that the data set has.
        system_prompt: Shown first; rows that bring a prompt of their own keep theirs.

    Raises:
        DataError: The source cannot be read, or a row is of no known format.
    """
    rows = load_rows(source, split=_SPLITS.get(split, (split,)))
    name = Path(source).name
    return [
        to_task(row, f"{name} row {number}", split, number, system_prompt)
        for number, row in rows
        if row.get("answerable") is not False
    ]


def to_task(row: Mapping[str, Any], where: str, split: str, index: int, system_prompt: str | None) -> Task:
    """A row as a task.

    Its ``passages`` are those that come with the question (``id``, ``title``, ``text``), and
    ``extra_info["supporting"]`` names the titles of those that hold the answer, where the data says so.
    """
    if "prompt" in row:
        return Task(row, where)
    question = row.get("question") or row.get("question_text")
    if not isinstance(question, str):
        raise DataError(
            f"{where} has neither `question` nor `prompt`; its columns are: {', '.join(row)}.",
            "Give the columns of HotpotQA, 2WikiMultihopQA or MuSiQue, or `prompt` and `reward_model`.",
        )
    passages = [{"id": title, "title": title, "text": text} for title, text, _ in _passages(row, where)]
    extra = {key: row[key] for key in ("type", "level") if row.get(key) is not None}
    identity = row.get("_id") or row.get("id") or row.get("question_id") or index
    head = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    return Task(
        {
            "prompt": [*head, {"role": "user", "content": question}],
            "data_source": _data_source(row),
            "ability": "multihop_qa",
            "reward_model": {"style": "rule", "ground_truth": _answers(row, where)},
            "passages": passages,
            "extra_info": {
                **extra,
                "split": split,
                "index": index,
                "id": str(identity),
                "question": question,
                "supporting": _supporting(row, where),
            },
        },
        where,
    )


def _answers(row: Mapping[str, Any], where: str) -> list[str]:
    """All accepted answers, the first being the usual one."""
    found: list[Any] = []
    if row.get("golden_answers"):  # FlashRAG
        found += list(row["golden_answers"])
    elif row.get("answers_objects"):  # IRCoT
        found += [span for each in row["answers_objects"] for span in each.get("spans", ())]
    elif row.get("answer") is not None:
        found += [row["answer"], *(row.get("answer_aliases") or ())]  # aliases: MuSiQue
    answers = list(dict.fromkeys(str(each) for each in found if each is not None and str(each).strip()))
    if not answers:
        raise DataError(
            f"{where} has no answer.", "The test splits of these data sets have none: take the validation split."
        )
    return answers


def _passages(row: Mapping[str, Any], where: str) -> Iterator[tuple[str, str, bool]]:
    """Title, text and whether it is marked as supporting, of each passage that comes with the question."""
    listed = _parsed(row.get("paragraphs") or row.get("contexts"), where)
    if listed:  # MuSiQue, IRCoT
        for each in listed:
            yield str(each["title"]), str(each["paragraph_text"]), bool(each.get("is_supporting"))
        return
    context = _parsed(row.get("context"), where)
    if isinstance(context, Mapping):  # the hub's HotpotQA: a column for each field
        sentences = context.get("sentences") or context.get("content") or ()
        context = list(zip(context.get("title", ()), sentences, strict=True))
    for each in context or ():
        title, text = each
        parts = [text] if isinstance(text, str) else text
        yield str(title), " ".join(str(part).strip() for part in parts), False


def _supporting(row: Mapping[str, Any], where: str) -> list[str]:
    """Titles of the passages that hold the answer, each once, in the order given."""
    facts = _parsed(row.get("supporting_facts"), where)
    if isinstance(facts, Mapping):
        titles: Sequence[Any] = facts.get("title", ())
    elif facts:
        titles = [fact[0] for fact in facts]
    else:
        titles = [title for title, _, marked in _passages(row, where) if marked]
    return list(dict.fromkeys(str(title) for title in titles))


def _parsed(value: Any, where: str) -> Any:
    """Some copies of 2WikiMultihopQA keep nested columns as JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        raise DataError(f"{where}: a nested column is a text but not JSON ({error}).", "Give lists.") from error


def _data_source(row: Mapping[str, Any]) -> str:
    if "paragraphs" in row:
        return "musique"
    return "2wikimultihopqa" if "evidences" in row else "hotpotqa"
