"""``OpenRLHFBackend``: a training job of ``agentr1 train``, run by an OpenRLHF launch.

It writes what the launch needs into the run's folder, starts it in the interpreter that has OpenRLHF, follows it, and
reports what it reports. It imports neither torch nor OpenRLHF.
"""

from __future__ import annotations

from typing import ClassVar

from agentr1_core.backend import BackendCapabilities, TrainingBackend, TrainingJob, TrainingResult


class OpenRLHFBackend(TrainingBackend):
    """Step-level RL on OpenRLHF."""

    name: ClassVar[str] = "openrlhf"

    @property
    def capabilities(self) -> BackendCapabilities:
        """What it can do."""
        return BackendCapabilities(
            merges=frozenset({"none", "linear"}),
            values=True,
            engines=frozenset({"openrlhf"}),
            resume=True,
            distributed=True,
        )

    def train(self, job: TrainingJob) -> TrainingResult:
        """Run a job to its end; see the contract."""
        from agentr1_backend_openrlhf.command import launch_of
        from agentr1_backend_openrlhf.prompts import write_prompts

        launch_of(job)
        write_prompts(job)
        raise NotImplementedError
