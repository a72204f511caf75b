"""GSM8K as tasks: the original columns, or rows that verl and Agent-R1 have processed, which are taken as they are.

The recipe calls ``load``. The original has ``question`` and ``answer``, a worked solution with its calculations as
``<<48/2=24>>`` and the final number after ``####`` (Cobbe et al. 2021).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentr1_core.dataset import load_rows
from agentr1_core.errors import DataError
from agentr1_core.task import Task

#: Shown first unless the data or the run file has something else.
SYSTEM_PROMPT = "Solve the problem. Use the calculator for every calculation. End with #### and the number alone."
#: Names of the held-out split in the data sets there are.
_SPLITS: Mapping[str, tuple[str, ...]] = {"train": ("train",), "eval": ("eval", "test", "validation")}
_CALCULATION = re.compile(r"<<([^<>=]+)=([^<>]*)>>")


def load(source: str | Path, split: str, system_prompt: str | None = SYSTEM_PROMPT) -> list[Task]:
    """All tasks of a split.

    Args:
        source: A hub id such as ``openai/gsm8k:main``, a file, or a folder with a file for each split.
        split: ``train``, ``eval`` (the data set's test split), or another that the data set has.
        system_prompt: Shown first; rows that bring a prompt of their own keep theirs.

    Raises:
        DataError: The source cannot be read, or a row is neither original nor processed.
    """
    rows = load_rows(source, split=_SPLITS.get(split, (split,)))
    return [to_task(row, f"{Path(source).name} row {number}", split, number, system_prompt) for number, row in rows]


def to_task(row: Mapping[str, Any], where: str, split: str, index: int, system_prompt: str | None) -> Task:
    """A row as a task; one that has a prompt already is taken as it is."""
    if "prompt" in row:
        return Task(row, where)
    question, solution = row.get("question"), row.get("answer")
    if not isinstance(question, str) or not isinstance(solution, str):
        raise DataError(
            f"{where} has neither `question` and `answer` nor `prompt`; its columns are: {', '.join(row)}.",
            "Give GSM8K's own columns, or rows with `prompt` and `reward_model`.",
        )
    head = [] if system_prompt is None else [{"role": "system", "content": system_prompt}]
    return Task(
        {
            "prompt": [*head, {"role": "user", "content": question}],
            "data_source": "openai/gsm8k",
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": final_number(solution, where)},
            "extra_info": {"split": split, "index": index, "question": question, "answer": solution},
        },
        where,
    )


def final_number(solution: str, where: str = "The solution") -> str:
    """The number after ``####``, without commas.

    Raises:
        DataError: There is none.
    """
    _, mark, after = solution.rpartition("####")
    number = after.strip().replace(",", "")
    if not mark or not re.fullmatch(r"-?\d+(\.\d+)?", number):
        raise DataError(f"{where} has no number after '####': {solution[-60:]!r}.", "End solutions as GSM8K does.")
    return number


def calculations(solution: str) -> list[tuple[str, str]]:
    """Each calculation of a worked solution and its value, as they are written."""
    return _CALCULATION.findall(solution)
