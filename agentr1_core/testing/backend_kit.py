"""What every training backend must do. Subclass ``BackendKit`` and say how to make the backend and a small job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentr1_core.backend import TrainingBackend, TrainingJob, TrainingResult
from agentr1_core.errors import PluginError

#: What every update reports.
REQUIRED_METRICS = ("loss", "reward", "success", "steps_per_episode", "entropy", "grad_norm", "logprob_gap")


class _Updates:
    """Keeps what a backend reports."""

    def __init__(self) -> None:
        self.updates: list[tuple[int, Mapping[str, float]]] = []

    def agentr1_update(self, *, metrics: Mapping[str, float], step: int) -> None:
        self.updates.append((step, dict(metrics)))

    def agentr1_step(self, **_: Any) -> None:
        """Not looked at."""

    def agentr1_trajectory(self, **_: Any) -> None:
        """Not looked at."""

    def agentr1_group(self, **_: Any) -> None:
        """Not looked at."""


class BackendKit:
    """Checks of the ``TrainingBackend`` contract. Override ``make_backend`` and ``make_job``."""

    def make_backend(self) -> TrainingBackend:
        """A new backend."""
        raise NotImplementedError("Override make_backend() in your test class.")

    def make_job(self, run_dir: Path) -> TrainingJob:
        """A job of two or three updates on a tiny model."""
        raise NotImplementedError("Override make_job() in your test class.")

    @pytest.fixture(scope="class")
    def trained(self, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingJob, TrainingResult, _Updates]:
        log = _Updates()
        job = replace(self.make_job(tmp_path_factory.mktemp("run")), hooks=log)
        return job, self.make_backend().train(job), log

    def test_every_update_is_reported(self, trained: tuple[TrainingJob, TrainingResult, _Updates]) -> None:
        job, result, log = trained
        assert result.updates == job.updates
        assert [step for step, _ in log.updates] == list(range(1, job.updates + 1))
        for _, metrics in log.updates:
            assert not [name for name in REQUIRED_METRICS if name not in metrics]

    def test_ledger_accounts_for_every_token(self, trained: tuple[TrainingJob, TrainingResult, _Updates]) -> None:
        ledger = trained[1].ledger
        assert ledger["sampled"] > 0
        assert ledger["trained"] + ledger["masked"] + ledger["dropped"] == ledger["sampled"]

    def test_trained_model_is_on_disk(self, trained: tuple[TrainingJob, TrainingResult, _Updates]) -> None:
        assert (trained[1].checkpoint / "config.json").is_file()

    def test_success_is_a_share(self, trained: tuple[TrainingJob, TrainingResult, _Updates]) -> None:
        job, result, _ = trained
        for share in (result.success_before, result.success_after):
            assert (share is None) == (not job.eval_tasks)
            assert share is None or 0 <= share <= 1

    def test_unsupported_merge_is_refused_by_name(self, tmp_path: Path) -> None:
        backend = self.make_backend()
        with pytest.raises(PluginError, match=backend.name):
            backend.check(replace(self.make_job(tmp_path), merge="no such layout"))
