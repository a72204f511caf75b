"""The folder of a run, and the recorder that fills it while the run goes on.

The CLI opens one ``RunFolder`` for each run and registers its ``Recorder`` as a plugin, so that it is told of every
trajectory and update. Lines are flushed as they are written: an interrupted run keeps what it has.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from agentr1_core.config import RunConfig, dump
from agentr1_core.errors import ConfigError
from agentr1_core.mdp import Step, Trajectory
from agentr1_core.metrics import is_success
from agentr1_core.plugins.hookspecs import hookimpl


@dataclass(frozen=True, slots=True)
class RunFolder:
    """Where everything about one run lies. The paths may not exist yet."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved run file."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """One JSON object for each update."""
        return self.path / "metrics.jsonl"

    @property
    def trajectories(self) -> Path:
        """One JSON object for each trajectory that was kept."""
        return self.path / "trajectories.jsonl"

    @property
    def summary(self) -> Path:
        """What the run achieved."""
        return self.path / "summary.json"

    @property
    def report(self) -> Path:
        """The report for people."""
        return self.path / "report.html"

    @property
    def evaluation(self) -> Path:
        """Of ``agentr1 eval``: what is evaluated."""
        return self.path / "evaluation.json"

    @property
    def results(self) -> Path:
        """Of ``agentr1 eval``: one JSON object for each finished episode."""
        return self.path / "results.jsonl"

    @property
    def tasks(self) -> Path:
        """Of ``agentr1 eval``: one line for each task."""
        return self.path / "tasks.csv"

    @property
    def is_only_begun(self) -> bool:
        """Whether it holds nothing but what every run writes before it starts."""
        kept = [entry for entry in self.path.rglob("*") if entry.is_file() and entry != self.config]
        return all(self.path / "base_model" in entry.parents for entry in kept)

    @classmethod
    def create(
        cls, config: RunConfig, *, path: Path | None = None, resume: bool = False, overwrite: bool = False
    ) -> RunFolder:
        """Make the folder of a new run, or find the one to resume, and write the configuration into it.

        Args:
            config: Names the folder: ``run.dir``/``run.name``, with a number when that is taken.
            path: Use exactly this folder.
            resume: Go on in an existing folder (the newest of that name).
            overwrite: Empty the folder of what an earlier run wrote.

        Raises:
            ConfigError: ``path`` is in use, or there is nothing to resume.
        """
        wanted = path or Path(config.run.dir) / config.run.name
        if resume:
            folder = cls.existing(config, path=path)
        else:
            folder = cls(wanted if path is not None or overwrite else _free(wanted))
            if overwrite:
                folder._empty()
            elif path is not None and _in_use(path):
                raise ConfigError(
                    f"The run folder '{path}' is not empty.",
                    "Name another --run-dir, or say --resume to go on or --overwrite to replace it.",
                )
        folder.path.mkdir(parents=True, exist_ok=True)
        folder.config.write_text(dump(config), encoding="utf-8")
        return folder

    @classmethod
    def existing(cls, config: RunConfig, *, path: Path | None = None) -> RunFolder:
        """The folder of an earlier run of this name (the newest), or exactly ``path``; nothing is written.

        Raises:
            ConfigError: There is no run.
        """
        folder = cls(path or _newest(Path(config.run.dir) / config.run.name))
        if not folder.config.is_file():
            raise ConfigError(f"There is no run to resume in '{folder.path}'.", "Run without --resume first.")
        return folder

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        """Write ``summary.json`` at once, so that a reader never sees half of it."""
        part = self.summary.with_suffix(".part")
        text = json.dumps(summary, indent=2, ensure_ascii=False) + "\n"
        part.write_text(text, encoding="utf-8", errors="backslashreplace")  # as in Recorder
        part.replace(self.summary)

    def read_metrics(self) -> list[dict[str, Any]]:
        """The updates so far, in order; of an update that a resumed run played again the newest figures."""
        newest = {row["update"]: row for row in _read_lines(self.metrics)}
        return [newest[update] for update in sorted(newest)]

    def read_trajectories(self) -> list[dict[str, Any]]:
        """The trajectories kept so far, in order."""
        return _read_lines(self.trajectories)

    def read_results(self) -> list[dict[str, Any]]:
        """The episodes of an evaluation so far, in the order in which they ended."""
        return _read_lines(self.results)

    def read_summary(self) -> dict[str, Any]:
        """What the run achieved; empty before its end."""
        return dict(json.loads(self.summary.read_text(encoding="utf-8"))) if self.summary.is_file() else {}

    def _empty(self) -> None:
        """Remove what runs write, and nothing else that may lie there."""
        import shutil

        written = (self.metrics, self.trajectories, self.summary, self.report)
        for file in (*written, self.evaluation, self.results, self.tasks):
            file.unlink(missing_ok=True)
        for name in ("checkpoint", "base_model", "tensorboard", "trainer", "warm_start"):
            if (self.path / name).is_dir():
                shutil.rmtree(self.path / name)


@dataclass(slots=True)
class Recorder:
    """Writes metrics and a sample of trajectories while a run goes on; register it at the plugin manager.

    Both files are only appended to. A resumed run plays the updates after its checkpoint again; readers take the
    last line of an update.

    Args:
        folder: Where to write.
        kept_per_update: Trajectories kept of each update, the first ones that come in.
    """

    folder: RunFolder
    kept_per_update: int = 4
    #: Updates done.
    updates: int = 0
    _started: float = field(default_factory=time.monotonic)
    _waiting: list[Trajectory] = field(default_factory=list)
    _files: dict[Path, IO[str]] = field(default_factory=dict)

    @hookimpl
    def agentr1_trajectory(self, trajectory: Trajectory) -> None:
        """Keep the first few of each update, and every one of an evaluation."""
        if trajectory.group_id.partition("/")[0] == "eval":
            self.keep([trajectory], "eval")
        elif len(self._waiting) < self.kept_per_update:
            self._waiting.append(trajectory)

    @hookimpl
    def agentr1_update(self, metrics: Mapping[str, float], step: int) -> None:
        """Write one line of metrics, and the trajectories that were kept for this update."""
        self.updates = step
        self._write_waiting()
        seconds = round(time.monotonic() - self._started, 3)
        self._write(self.folder.metrics, {"update": step, "seconds": seconds, **dict(metrics)})

    def keep(self, trajectories: Iterable[Trajectory], phase: str) -> None:
        """Write trajectories that belong to no update, such as those of an evaluation."""
        for trajectory in trajectories:
            self._write(self.folder.trajectories, trajectory_row(trajectory, update=self.updates, phase=phase))

    def close(self) -> None:
        """Write what waits for an update that did not come, and close the files."""
        if self._waiting:
            self.updates += 1
            self._write_waiting()
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _write_waiting(self) -> None:
        self.keep(self._waiting, "train")
        self._waiting.clear()

    def _write(self, path: Path, row: Mapping[str, Any]) -> None:
        file = self._files.get(path)
        if file is None:
            # Half a character, which a model may write as "\\ud83d" into a call, stays such an escape.
            file = self._files[path] = path.open("a", encoding="utf-8", errors="backslashreplace")
        file.write(json.dumps(row, ensure_ascii=False, default=_plain) + "\n")
        file.flush()


def trajectory_row(trajectory: Trajectory, *, update: int, phase: str) -> dict[str, Any]:
    """A trajectory as one JSON line: what was seen, sampled, fed back and rewarded in each step.

    Args:
        trajectory: What was played.
        update: The update it was played for; of an evaluation the number of updates before it.
        phase: ``train``, ``eval`` or ``rollout``.
    """
    return {
        "id": trajectory.id,
        "group": trajectory.group_id,
        "phase": phase,
        "update": update,
        "reward": trajectory.ret,
        "rewards": dict(trajectory.rewards),
        "success": is_success(trajectory),
        "stop_reason": trajectory.stop_reason.value,
        "error": trajectory.error,
        "seconds": round(trajectory.seconds, 3),
        "tokens": trajectory.n_tokens,
        "trainable": trajectory.is_trainable,
        "task": dict(trajectory.task),
        "steps": [_step_row(step) for step in trajectory.steps],
    }


def _step_row(step: Step) -> dict[str, Any]:
    return {
        "seen": list(step.observation.messages),
        "prompt_tokens": step.n_prompt,
        "continued": step.continued,
        "text": step.action.text,
        "sampled_tokens": step.action.n_sampled,
        "token_ids": step.action.token_ids.tolist(),
        "logprobs": [round(float(value), 4) for value in step.action.logprobs],
        "finish_reason": step.action.finish_reason.value,
        "tool_calls": [{"name": call.name, "arguments": call.arguments} for call in step.action.tool_calls],
        "parse_failures": [failure.status.value for failure in step.action.parse_failures],
        "feedback": list(step.feedback),
        "reward": step.reward,
        "info": dict(step.info),
    }


def _plain(value: Any) -> Any:
    """What JSON does not know: numpy values as numbers and lists, anything else as text."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def whole_lines(path: Path) -> None:
    """Cut off the line that a killed process left half written, so that more can be appended."""
    if not path.is_file():
        return
    with path.open("rb+") as file:
        end = file.seek(0, 2)
        position = end
        while position > 0:
            start = max(0, position - 65536)
            file.seek(start)
            found = file.read(position - start).rfind(b"\n")
            if found >= 0:
                position = start + found + 1
                break
            position = start
        if position < end:
            file.truncate(position)


def _read_lines(path: Path) -> list[dict[str, Any]]:
    """The JSON objects of a file, one a line; a last line that was cut off is left out."""
    if not path.is_file():
        return []
    # As bytes: texts may hold U+2028, which is a line end to str, and the last character may be cut in two.
    lines: Sequence[bytes] = path.read_bytes().removesuffix(b"\n").split(b"\n")
    if lines == [b""]:
        return []
    rows = []
    for number, line in enumerate(lines):
        try:
            rows.append(json.loads(line.decode()))
        except ValueError:  # of JSON or of UTF-8
            if number == len(lines) - 1:
                break  # the run was killed in the middle of its last line
            raise
    return rows


def _in_use(path: Path) -> bool:
    return path.is_dir() and any(path.iterdir())


def _free(wanted: Path) -> Path:
    """``wanted``, or the first of ``wanted-2``, ``wanted-3``, ... that is not in use."""
    path, number = wanted, 2
    while _in_use(path):
        path = wanted.with_name(f"{wanted.name}-{number}")
        number += 1
    return path


def _newest(wanted: Path) -> Path:
    """The folder of that name with the highest number."""
    pattern = re.compile(rf"{re.escape(wanted.name)}-(\d+)")
    numbered = {
        int(match[1]): path
        for path in (wanted.parent.iterdir() if wanted.parent.is_dir() else ())
        if (match := pattern.fullmatch(path.name))
    }
    return numbered[max(numbered)] if numbered else wanted
