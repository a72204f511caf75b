"""The tasks of a run as OpenRLHF's prompt files, and a task again from what OpenRLHF hands to an agent.

The launch writes the files; the agent executor calls ``read_label`` for every episode. A line has the columns
``prompt``, ``label`` and ``datasource``, all text: the label is the whole task as JSON, so that no column passes
through Arrow, where rows of different shapes fill each other up.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from agentr1_core.backend import TrainingJob
from agentr1_core.errors import DataError
from agentr1_core.task import Task

Split = Literal["train", "eval"]

#: Column names, as the launch tells them to OpenRLHF.
PROMPT, LABEL, SOURCE = "prompt", "label", "datasource"
#: Marks a label that this module wrote.
_MARK = "agentr1"


@dataclass(frozen=True, slots=True)
class PromptFiles:
    """Where the tasks of a run lie."""

    train: Path
    #: ``None`` for a run without held-out tasks.
    eval: Path | None

    @classmethod
    def of(cls, job: TrainingJob) -> PromptFiles:
        """The files of a job, whether they are written yet or not."""
        folder = job.run_dir / "openrlhf"
        return cls(folder / "prompts.jsonl", folder / "eval_prompts.jsonl" if job.eval_tasks else None)


def write_prompts(job: TrainingJob) -> PromptFiles:
    """Write the prompt files of a job into the backend's own folder, which a new run finds empty.

    OpenRLHF goes through its prompts once and updates after every ``prompts_per_update`` of them. The file therefore
    holds exactly the prompts of all updates: the tasks pass by pass, each pass shuffled by the job's seed.

    Raises:
        DataError: A task holds something that JSON cannot keep.
    """
    files = PromptFiles.of(job)
    if not job.resume:
        shutil.rmtree(files.train.parent, ignore_errors=True)
    files.train.parent.mkdir(parents=True, exist_ok=True)
    n_prompts = job.updates * job.prompts_per_update
    _write(files.train, (_line(task, "train") for task in _passes(job.train_tasks, n_prompts, job.seed)))
    if files.eval is not None:
        _write(files.eval, (_line(task, "eval") for task in job.eval_tasks))
    return files


def read_label(prompt: str, label: Any) -> tuple[Task, Split]:
    """The task that OpenRLHF hands to an agent as a prompt and a label, and which file it is from.

    A label that agentr1 did not write is that of a data set of the user's own: the prompt is then the opening message
    and the label the ground truth. A label that is a JSON object gives further columns.

    Raises:
        DataError: A label of agentr1's is damaged.
    """
    value = _parsed(label)
    if isinstance(value, Mapping) and _MARK in value:
        try:
            return Task(value["task"], value["where"]), "eval" if value[_MARK] == "eval" else "train"
        except (KeyError, TypeError) as error:
            raise DataError(f"A label in the prompt file is damaged: {error!r}.", "Start the run anew.") from error
    columns = dict(value) if isinstance(value, Mapping) else {"ground_truth": label}
    return Task({"prompt": prompt, **columns}, f"the prompt {prompt[:60]!r}"), "train"


def label_of(task: Task, split: Split) -> str:
    """A task as the text that stands in the column ``label``.

    Raises:
        DataError: The task holds something that JSON cannot keep, such as bytes.
    """
    try:
        row = json.dumps(dict(task), default=_plain, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{task.where} cannot be handed to OpenRLHF's workers as JSON: {error}.",
            "Keep text, numbers, lists and mappings with text keys in the data set.",
        ) from error
    return f'{{"{_MARK}": {json.dumps(split)}, "where": {json.dumps(task.where, ensure_ascii=False)}, "task": {row}}}'


def _line(task: Task, split: Split) -> str:
    said = [message["content"] for message in task.prompt if isinstance(message["content"], str)]
    columns = {PROMPT: said[-1] if said else task.where, LABEL: label_of(task, split)}
    return json.dumps({**columns, SOURCE: str(task.data_source or "default")}, ensure_ascii=False)


def _passes(tasks: Sequence[Task], n: int, seed: int) -> Iterator[Task]:
    """``n`` tasks: all of them again and again, in another order each time."""
    order, shuffle = list(tasks), random.Random(seed)
    while n > 0:
        shuffle.shuffle(order)
        yield from order[:n]
        n -= len(order)


def _write(path: Path, lines: Iterable[str]) -> None:
    part = path.with_suffix(".part")
    with part.open("w", encoding="utf-8") as out:
        out.writelines(f"{line}\n" for line in lines)
    part.replace(path)


def _parsed(label: Any) -> Any:
    if not isinstance(label, str) or not label.lstrip().startswith("{"):
        return label
    try:
        return json.loads(label)
    except json.JSONDecodeError:
        return label  # a ground truth that only begins like JSON


def _plain(value: Any) -> Any:
    """numpy's arrays and numbers, which parquet files give, as lists and numbers."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"it holds a {type(value).__name__}")
