"""The folder of an evaluation: one line for each finished episode, written at once, and the tables made of them.

``agentr1 eval`` opens it once. A second call finds what is there, and plays only what is missing.
"""

from __future__ import annotations

import csv
import fcntl
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from agentr1_core.errors import ConfigError
from agentr1_core.evaluation.attempt import Attempt
from agentr1_core.evaluation.identity import Identity
from agentr1_core.evaluation.summary import TaskResult
from agentr1_core.run_folder import RunFolder, whole_lines


class EvaluationFolder:
    """Results of one evaluation; a context manager that holds the file of results.

    Args:
        folder: The run folder it lies in.
    """

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        self._file: IO[str] | None = None

    def __enter__(self) -> EvaluationFolder:
        """Open the results for more.

        Raises:
            ConfigError: Another process writes to them.
        """
        file = self.folder.results.open("a", encoding="utf-8", errors="backslashreplace")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            raise ConfigError(
                f"Another process is playing into '{self.folder.path}'.", "Wait for its end, or name another --run-dir."
            ) from error
        self._file = file
        whole_lines(self.folder.results)
        whole_lines(self.folder.trajectories)
        return self

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()  # which also gives the lock back
            self._file = None

    def begin(self, identity: Identity) -> None:
        """Note what the evaluation is of, or check that it is still the same.

        Raises:
            ConfigError: The folder holds an evaluation of something else; names what differs.
        """
        note = self.folder.evaluation
        if not note.is_file():
            note.write_text(json.dumps(dict(identity.values), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
            return
        begun = Identity(json.loads(note.read_text(encoding="utf-8")))
        # Through JSON as well, so that what was written and what would be are compared.
        differences = Identity(json.loads(json.dumps(dict(identity.values)))).differences(begun)
        if differences:
            raise ConfigError(
                f"'{self.folder.path}' holds an evaluation of something else: {'; '.join(differences)}.",
                "Resume with what it was begun with, or evaluate into a new folder (leave out --resume).",
            )

    def add(self, attempt: Attempt) -> None:
        """Write an attempt now."""
        if self._file is None:
            raise RuntimeError("The evaluation folder is not open.")
        self._file.write(json.dumps(attempt.as_row(), ensure_ascii=False) + "\n")
        self._file.flush()

    def read(self) -> dict[tuple[str, int], Attempt]:
        """Attempts by task and number; of one that was played again the last."""
        where = str(self.folder.results)
        attempts = (Attempt.from_row(row, where) for row in self.folder.read_results())
        return {(attempt.task, attempt.attempt): attempt for attempt in attempts}

    def write_tasks(self, tasks: Sequence[TaskResult]) -> Path:
        """Write ``tasks.csv``: one line a task, the hardest first.

        Returns:
            Where it is.
        """
        rows = [_task_row(task) for task in tasks]
        rows.sort(key=lambda row: (row["success"] if isinstance(row["success"], float) else -1.0, str(row["name"])))
        columns = list(dict.fromkeys(column for row in rows for column in row))
        with self.folder.tasks.open("w", encoding="utf-8", newline="") as file:
            table = csv.DictWriter(file, columns, restval="")
            table.writeheader()
            table.writerows(rows)
        return self.folder.tasks


def _task_row(task: TaskResult) -> Mapping[str, Any]:
    row: dict[str, Any] = {
        "task": task.task,
        "name": task.name,
        "group": task.group or "",
        "attempts": len(task.attempts),
        "failed": task.failed,
        "solved": task.solved,
        "success": "",
    }
    if not task.attempts:
        return row
    row["success"] = task.solved / len(task.attempts)
    row["reward"] = task.mean(lambda attempt: attempt.ret)
    row["steps"] = task.mean(lambda attempt: float(attempt.steps))
    row["tokens"] = task.mean(lambda attempt: float(attempt.tokens))
    for name in sorted(set.intersection(*(set(attempt.info) for attempt in task.attempts))):
        row[f"info/{name}"] = sum(attempt.info[name] for attempt in task.attempts) / len(task.attempts)
    return row
