"""The live view of a training run: a progress bar with ETA, reward and success.

``agentr1 train`` registers it as an observer. Where the output is no terminal it prints one line for an update.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as Remaining

from agentr1_core.plugins.hookspecs import hookimpl


class TrainProgress:
    """A context manager and observer.

    Args:
        console: Where to print.
        updates: Updates of the whole run.
        preparing: What happens before the first update, in words.
    """

    def __init__(self, console: Console, updates: int, preparing: str) -> None:
        self._console = console
        self._updates = updates
        self._episodes = 0
        self._last_line = 0.0
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("updates"),
            TextColumn("{task.fields[figures]}"),
            TimeElapsedColumn(),
            TextColumn("ETA"),
            Remaining(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task(preparing, total=max(updates, 1), figures="", start=True)
        self._preparing = preparing

    def __enter__(self) -> TrainProgress:
        if not self._console.is_terminal:
            self._console.print(f"{self._preparing} ...", markup=False)
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    @hookimpl
    def agentr1_trajectory(self) -> None:
        """Count the episodes of the update being collected."""
        self._episodes += 1
        self._bar.update(self._task, description=f"Collecting ({self._episodes} episodes)")

    @hookimpl
    def agentr1_update(self, metrics: Mapping[str, float], step: int) -> None:
        """Show the newest figures."""
        self._episodes = 0
        figures = describe_metrics(metrics)
        if step == 1 or self._bar.tasks[0].completed == 0:
            self._bar.reset(self._task, total=max(self._updates, step), description="Training")
        self._bar.update(self._task, completed=step, description="Training", figures=figures)
        self._say_line(step, figures)

    def _say_line(self, step: int, figures: str) -> None:
        """At most one line a second, but always the first and the last update."""
        if self._console.is_terminal:
            return
        now = time.monotonic()
        if step not in (1, self._updates) and now - self._last_line < 1.0:
            return
        self._last_line = now
        self._console.print(f"update {step}/{self._updates}  {figures}", markup=False, highlight=False, soft_wrap=True)


def describe_metrics(metrics: Mapping[str, float]) -> str:
    """Reward and success of an update in a few words."""
    names = (("reward", "reward"), ("success", "success"), ("eval/success", "held-out"))
    return "  ".join(f"{word} {metrics[name]:.3f}" for name, word in names if name in metrics)
