"""What every training backend must do. Subclass ``BackendKit`` and say how to make the backend and a small job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agentr1_core.backend import TrainingBackend, TrainingJob, TrainingResult
from agentr1_core.errors import PluginError
from agentr1_core.mdp import FloatArray
from agentr1_core.testing.rules import rule

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
    """Checks of the ``TrainingBackend`` contract. Override ``make_backend``, ``make_job`` and maybe ``gradients``."""

    #: Largest difference between the gradients, as a share of the reference's norm.
    gradient_rtol = 1e-4

    def make_backend(self) -> TrainingBackend:
        """A new backend."""
        raise NotImplementedError("Override make_backend() in your test class.")

    def make_job(self, run_dir: Path) -> TrainingJob:
        """A job of two or three updates on a tiny model."""
        raise NotImplementedError("Override make_job() in your test class.")

    def gradients(self) -> tuple[FloatArray, FloatArray] | None:
        """The gradient of one update, flat, and the same by other means (a loss written out by hand on the raw steps);
        ``None`` where it cannot be reached."""
        return None

    @pytest.fixture(scope="class")
    @classmethod
    def trained(cls, tmp_path_factory: pytest.TempPathFactory) -> tuple[TrainingJob, TrainingResult, _Updates]:
        return cls().train(tmp_path_factory.mktemp("run"))

    def train(self, run_dir: Path) -> tuple[TrainingJob, TrainingResult, _Updates]:
        """Run the job to its end and keep what it reports."""
        log = _Updates()
        job = replace(self.make_job(run_dir), hooks=log)
        return job, self.make_backend().train(job), log

    @rule("backend/reports")
    def test_every_update_is_reported(self, trained: tuple[TrainingJob, TrainingResult, _Updates]) -> None:
        job, result, log = trained
        assert result.updates == job.updates, f"{result.updates} updates of {job.updates}"
        steps = [step for step, _ in log.updates]
        assert steps == list(range(1, job.updates + 1)), f"the updates {steps} were reported to the hooks"
        for step, metrics in log.updates:
            missing = [name for name in REQUIRED_METRICS if name not in metrics]
            assert not missing, f"update {step} is reported without {', '.join(missing)}"

    @rule("backend/ledger")
    def test_ledger_accounts_for_every_token(self, trained: tuple[TrainingJob, TrainingResult, _Updates]) -> None:
        ledger = trained[1].ledger
        assert ledger["sampled"] > 0, "nothing was sampled"
        accounted = ledger["trained"] + ledger["masked"] + ledger["dropped"]
        assert accounted == ledger["sampled"], f"{ledger['sampled']} tokens sampled, {accounted} accounted for"

    @rule("backend/checkpoint")
    def test_trained_model_is_on_disk(self, trained: tuple[TrainingJob, TrainingResult, _Updates]) -> None:
        assert (trained[1].checkpoint / "config.json").is_file(), f"no model in {trained[1].checkpoint}"

    @rule("backend/success")
    def test_success_is_a_share(self, trained: tuple[TrainingJob, TrainingResult, _Updates]) -> None:
        job, result, _ = trained
        for share in (result.success_before, result.success_after):
            assert (share is None) == (not job.eval_tasks), "success is measured where there are held-out tasks"
            assert share is None or 0 <= share <= 1, f"success is a share, not {share}"

    @rule("backend/capabilities")
    def test_unsupported_merge_is_refused_by_name(self, tmp_path: Path) -> None:
        backend = self.make_backend()
        with pytest.raises(PluginError, match=backend.name):
            backend.check(replace(self.make_job(tmp_path), merge="no such layout"))

    @rule("backend/gradient")
    def test_the_gradient_is_that_of_the_reference(self) -> None:
        pair = self.gradients()
        if pair is None:
            pytest.skip("no gradients are given")
        found, wanted = pair
        assert found.shape == wanted.shape, f"gradients of shape {found.shape} and {wanted.shape}"
        assert np.linalg.norm(wanted) > 0, "the reference's gradient is zero, which any backend would match"
        apart = float(np.linalg.norm(found - wanted) / np.linalg.norm(wanted))
        assert apart <= self.gradient_rtol, f"the gradient is {apart:.3g} of its norm off the reference's"

    @rule("backend/resume")
    def test_a_run_goes_on_where_it_was_saved(self, tmp_path: Path) -> None:
        backend = self.make_backend()
        job = replace(self.make_job(tmp_path), save_every=1)
        if not backend.capabilities.resume:
            with pytest.raises(PluginError, match=backend.name):
                backend.check(replace(job, resume=True))
            return
        backend.train(replace(job, hooks=_Updates()))
        log = _Updates()
        result = self.make_backend().train(replace(job, hooks=log, resume=True, updates=job.updates + 1))
        steps = [step for step, _ in log.updates]
        assert steps == [job.updates + 1], f"resumed after update {job.updates} it reports the updates {steps}"
        assert result.updates == job.updates + 1, f"the resumed run says that it has {result.updates} updates"
