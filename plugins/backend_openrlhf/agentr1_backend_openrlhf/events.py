"""What a launch tells the process that started it: one JSON object a line, in the run's folder.

The trainer inside OpenRLHF writes, ``OpenRLHFBackend`` reads while the launch runs and tells the run's observers. A
trajectory is pickled within its line: both sides run the same version of agentr1, and the file is the run's own.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from agentr1_core.mdp import Group, Trajectory

EVENTS = "events.jsonl"


class EventWriter:
    """Appends to a file of events; each line is flushed when written.

    A last line that an earlier launch did not finish, because it was killed, is cut off.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.is_file():
            os.truncate(path, _whole_lines(path))
        self._file: IO[str] = path.open("a", encoding="utf-8")

    def group(self, group: Group) -> None:
        """The episodes of one task are in."""
        self._write("group", pickle=_packed(group))

    def held_out(self, trajectory: Trajectory) -> None:
        """An episode of an evaluation."""
        self._write("trajectory", pickle=_packed(trajectory))

    def update(self, step: int, metrics: Mapping[str, float]) -> None:
        """The policy was updated."""
        self._write("update", step=step, metrics=dict(metrics))

    def success(self, when: str, share: float | None) -> None:
        """Share of held-out tasks solved ``before`` or ``after`` training."""
        self._write("success", when=when, share=share)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _write(self, event: str, **more: Any) -> None:
        self._file.write(json.dumps({"event": event, "time": round(time.time(), 3), **more}) + "\n")
        self._file.flush()


class EventReader:
    """Reads what was appended since the last look.

    Args:
        path: The file, which need not exist yet.
        from_start: Whether what is there already counts as new.
    """

    def __init__(self, path: Path, *, from_start: bool = False) -> None:
        self._path = path
        self._offset = _whole_lines(path) if path.is_file() and not from_start else 0

    def new(self) -> Iterator[dict[str, Any]]:
        """The events that are complete by now, ``group`` and ``trajectory`` ones with the object under ``value``."""
        if not self._path.is_file():
            return
        with self._path.open("rb") as file:
            file.seek(self._offset)
            for line in file:
                if not line.endswith(b"\n"):
                    return  # still being written
                self._offset += len(line)
                event = json.loads(line)
                if "pickle" in event:
                    event["value"] = pickle.loads(base64.b64decode(event.pop("pickle")))
                yield event


def _whole_lines(path: Path) -> int:
    """Bytes of the file up to the end of its last finished line."""
    end = 0
    with path.open("rb") as file:
        for line in file:
            end += len(line) if line.endswith(b"\n") else 0
    return end


def _packed(value: Any) -> str:
    return base64.b64encode(pickle.dumps(value)).decode("ascii")


def read_success(path: Path, when: str) -> float | None:
    """What an earlier launch of this run told about its success; ``None`` where it told nothing."""
    found: float | None = None
    if path.is_file():
        with path.open(encoding="utf-8") as file:
            for line in file:
                if line.startswith('{"event": "success"') and line.endswith("\n"):
                    event = json.loads(line)
                    found = event["share"] if event["when"] == when else found
    return found
