"""What a launch has told so far, passed on to a run's observers and added up to its result.

``OpenRLHFBackend`` reads along while the launch runs; ``agentr1 openrlhf-report`` reads what somebody else's left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentr1_backend_openrlhf.events import EventReader
from agentr1_core.backend import TrainingResult
from agentr1_core.errors import PluginError
from agentr1_core.mdp import Group, Trajectory

_LEDGER = ("sampled", "trained", "masked", "dropped")


@dataclass(slots=True)
class Told:
    """What a launch has told so far, passed on to the observers."""

    hooks: Any
    #: Whether updates carry the launch's own clock, for observers that do not watch it run.
    with_clock: bool = False
    success: dict[str, float | None] = field(default_factory=dict)
    updates: int = 0
    ledger: Counter[str] = field(default_factory=Counter)
    #: Seconds between its first word and its last, by that clock.
    seconds: float = 0.0
    _begin: float | None = None

    def tell(self, events: EventReader) -> None:
        """Pass on what is new."""
        for event in events.new():
            if self.with_clock:
                self._begin = event["time"] if self._begin is None else self._begin
                self.seconds = event["time"] - self._begin
            match event["event"]:
                case "group":
                    self._group(event["value"])
                case "trajectory":
                    self._trajectory(event["value"])
                case "update":
                    self._update(event["step"], event["metrics"])
                case "success":
                    self.success[event["when"]] = event["share"]

    def is_over(self, run_dir: Path) -> bool:
        """Whether the launch has said its last word and left a model in the run's folder."""
        return "after" in self.success and (run_dir / "checkpoint" / "config.json").is_file()

    def result(self, run_dir: Path) -> TrainingResult:
        """The run's result.

        Args:
            run_dir: The run's folder.

        Raises:
            PluginError: The launch ended without its last word or without a model.
        """
        if not self.is_over(run_dir):
            raise PluginError(
                "The OpenRLHF launch ended without an error, but also without a trained model.",
                f"Read {run_dir / 'openrlhf' / 'launch.log'}.",
            )
        return TrainingResult(
            success_before=self.success.get("before"),
            success_after=self.success["after"],
            updates=self.updates,
            ledger={name: self.ledger[name] for name in _LEDGER},
            checkpoint=run_dir / "checkpoint",
        )

    def _group(self, group: Group) -> None:
        if self.hooks is None:
            return
        for trajectory in (*group.trajectories, *group.failed):
            for step in trajectory.steps:
                self.hooks.agentr1_step(step=step, trajectory_id=trajectory.id)
            self._trajectory(trajectory)
        self.hooks.agentr1_group(group=group)

    def _trajectory(self, trajectory: Trajectory) -> None:
        if self.hooks is not None:
            self.hooks.agentr1_trajectory(trajectory=trajectory)

    def _update(self, step: int, metrics: Mapping[str, float]) -> None:
        self.updates = step
        self.ledger.update({name: int(metrics.get(f"ledger/{name}", 0)) for name in _LEDGER})
        if self.hooks is not None:
            clock = {"seconds": round(self.seconds, 3)} if self.with_clock else {}
            self.hooks.agentr1_update(metrics={**metrics, **clock}, step=step)
