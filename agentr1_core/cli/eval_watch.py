"""The live view of an evaluation, and the writer of its results: told of every episode that ends."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining

from agentr1_core.evaluation import Attempt, EvaluationFolder, task_name
from agentr1_core.job import EvaluationJob
from agentr1_core.mdp import Trajectory
from agentr1_core.plugins.hookspecs import hookimpl
from agentr1_core.run_folder import Recorder

#: Seconds between two lines where the output is no terminal.
_LINE_S = 10.0


class EvalWatch:
    """A context manager and observer.

    Args:
        job: Names the tasks.
        kept: Where results are written.
        recorder: Where trajectories are written; ``None`` to keep none.
        console: Where to print.
        n_plays: Episodes that will be played.
        n_done: Episodes of the whole evaluation, those of earlier calls included.
    """

    def __init__(
        self,
        job: EvaluationJob,
        kept: EvaluationFolder,
        recorder: Recorder | None,
        console: Console,
        *,
        n_plays: int,
        n_done: int,
    ) -> None:
        self._job = job
        self._kept = kept
        self._recorder = recorder
        self._console = console
        self._n_plays = n_plays
        self._earlier = n_done - n_plays
        self._ended = self._solved = self._failed = 0
        self._last_line = time.monotonic()
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("episodes"),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            Remaining(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("Evaluating", total=n_plays, figures="")

    def __enter__(self) -> EvalWatch:
        if not self._console.is_terminal:
            earlier = f", {self._earlier} are there already" if self._earlier else ""
            self._say(f"Evaluating {self._job.model}: {self._n_plays} episodes to play{earlier} ...")
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    @hookimpl
    def agentr1_trajectory(self, trajectory: Trajectory) -> None:
        """Write the attempt and show how far it is."""
        key, number = self._job.attempt_of(trajectory.id)
        attempt = Attempt.of(trajectory, key, number, task_name(self._job.tasks[key]))
        self._kept.add(attempt)
        if self._recorder is not None:
            self._recorder.keep([trajectory], "eval")
        self._ended += 1
        self._solved += attempt.success
        self._failed += attempt.failed
        figures = f"{self._solved} solved" + (f", {self._failed} failed" if self._failed else "")
        self._bar.update(self._task, completed=self._ended, figures=figures)
        now = time.monotonic()
        if not self._console.is_terminal and now - self._last_line >= _LINE_S:
            self._last_line = now
            self._say(f"{self._ended}/{self._n_plays} episodes  {figures}")

    def _say(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)
