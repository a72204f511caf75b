"""``OpenRLHFBackend``: a training job of ``agentr1 train``, run by an OpenRLHF launch.

It writes what the launch needs into the run's folder, starts it in the interpreter that has OpenRLHF, follows it, and
tells the run's observers what it reports. It imports neither torch nor OpenRLHF.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from agentr1_backend_openrlhf.command import launch_arguments, launch_of
from agentr1_backend_openrlhf.events import EVENTS, EventReader, read_success
from agentr1_backend_openrlhf.process import LaunchProcess
from agentr1_backend_openrlhf.prompts import write_prompts
from agentr1_core.backend import BackendCapabilities, TrainingBackend, TrainingJob, TrainingResult
from agentr1_core.errors import ConfigError, PluginError
from agentr1_core.mdp import Group, Trajectory

#: Seconds a launch may take unless ``backend.timeout_s`` says otherwise: a week.
DEFAULT_TIMEOUT_S = 7 * 24 * 3600.0
_LEDGER = ("sampled", "trained", "masked", "dropped")


class OpenRLHFBackend(TrainingBackend):
    """Step-level RL on OpenRLHF. Settings are OpenRLHF's own options, and:

    ``python`` (interpreter of the environment that has OpenRLHF; this one by default) and ``timeout_s`` (seconds for
    the whole launch). The launch's output is kept in ``openrlhf/launch.log`` of the run's folder.
    """

    name: ClassVar[str] = "openrlhf"

    @property
    def capabilities(self) -> BackendCapabilities:
        """What it can do."""
        return BackendCapabilities(merges=frozenset({"none", "linear"}), values=True, resume=True, distributed=True)

    def check(self, job: TrainingJob) -> None:
        """Refuse a job that cannot be done, OpenRLHF's own options included, before anything is started."""
        super().check(job)
        launch_arguments(job)
        if job.resume and not (job.run_dir / "trainer" / "_actor").is_dir():
            raise ConfigError(
                f"There is no checkpoint of OpenRLHF in '{job.run_dir / 'trainer'}'.",
                "Set `run.save_every` and start a new run: OpenRLHF writes none at the end of a run by itself.",
            )

    def train(self, job: TrainingJob) -> TrainingResult:
        """Run a job to its end; see the contract.

        Raises:
            ConfigError: A setting is wrong, or the run's folder has no run file.
            PluginError: The launch failed or passed its deadline; its last words are in the message.
        """
        self.check(job)
        if not (job.run_dir / "config.yaml").is_file():
            raise ConfigError(
                f"There is no run file '{job.run_dir / 'config.yaml'}', and OpenRLHF's workers play what it says.",
                "Start the run with `agentr1 train`, which writes it.",
            )
        write_prompts(job)
        folder = job.run_dir / "openrlhf"
        events, told = EventReader(folder / EVENTS), _Told(job.hooks)
        if job.resume:
            told.success["before"] = read_success(folder / EVENTS, "before")
        timeout_s = float(job.settings.get("timeout_s") or DEFAULT_TIMEOUT_S)
        with LaunchProcess(launch_of(job), folder / "launch.log", timeout_s) as launch:
            while launch.runs():
                told.tell(events)
            told.tell(events)
            launch.check_success()
        return told.result(job)


@dataclass(slots=True)
class _Told:
    """What a launch has told so far, passed on to the observers."""

    hooks: Any
    success: dict[str, float | None] = field(default_factory=dict)
    updates: int = 0
    ledger: Counter[str] = field(default_factory=Counter)

    def tell(self, events: EventReader) -> None:
        """Pass on what is new."""
        for event in events.new():
            match event["event"]:
                case "group":
                    self._group(event["value"])
                case "trajectory":
                    self._trajectory(event["value"])
                case "update":
                    self._update(event["step"], event["metrics"])
                case "success":
                    self.success[event["when"]] = event["share"]

    def result(self, job: TrainingJob) -> TrainingResult:
        """The run's result.

        Raises:
            PluginError: The launch ended without its last word or without a model.
        """
        checkpoint = job.run_dir / "checkpoint"
        if "after" not in self.success or not (checkpoint / "config.json").is_file():
            raise PluginError(
                "The OpenRLHF launch ended without an error, but also without a trained model.",
                f"Read {Path(job.run_dir) / 'openrlhf' / 'launch.log'}.",
            )
        return TrainingResult(
            success_before=self.success.get("before"),
            success_after=self.success["after"],
            updates=self.updates,
            ledger={name: self.ledger[name] for name in _LEDGER},
            checkpoint=checkpoint,
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
            self.hooks.agentr1_update(metrics=metrics, step=step)
