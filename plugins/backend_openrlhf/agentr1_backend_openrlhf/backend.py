"""``OpenRLHFBackend``: a training job of ``agentr1 train``, run by an OpenRLHF launch.

It writes what the launch needs into the run's folder, starts it in the interpreter that has OpenRLHF, follows it, and
tells the run's observers what it reports. It imports neither torch nor OpenRLHF.
"""

from __future__ import annotations

from typing import ClassVar

from agentr1_backend_openrlhf.command import launch_arguments, launch_of
from agentr1_backend_openrlhf.events import EVENTS, EventReader, read_success
from agentr1_backend_openrlhf.process import LaunchProcess
from agentr1_backend_openrlhf.prompts import write_prompts
from agentr1_backend_openrlhf.told import Told
from agentr1_core.backend import BackendCapabilities, TrainingBackend, TrainingJob, TrainingResult
from agentr1_core.errors import ConfigError

#: Seconds a launch may take unless ``backend.timeout_s`` says otherwise: a week.
DEFAULT_TIMEOUT_S = 7 * 24 * 3600.0


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
        events, told = EventReader(folder / EVENTS), Told(job.hooks)
        if job.resume:
            told.success["before"] = read_success(folder / EVENTS, "before")
        timeout_s = float(job.settings.get("timeout_s") or DEFAULT_TIMEOUT_S)
        with LaunchProcess(launch_of(job), folder / "launch.log", timeout_s) as launch:
            while launch.runs():
                told.tell(events)
            told.tell(events)
            launch.check_success()
        return told.result(job.run_dir)
