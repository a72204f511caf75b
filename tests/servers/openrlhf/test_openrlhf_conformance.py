"""The backend through the conformance kit: launches of the real OpenRLHF with Ray and DeepSpeed on the CPU.

Episodes come through the core's collector with the embedded engine; OpenRLHF's own rollout workers are in
``test_openrlhf_own_engines``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch
from conftest import cpu_environment
from deepspeed_ranks import run_ranks
from step_case import DeepSpeedCase, reference_step, rows_of_round
from toy_run import toy_job

from agentr1_backend_openrlhf.backend import OpenRLHFBackend
from agentr1_core.backend import TrainingJob
from agentr1_core.mdp import FloatArray
from agentr1_core.testing.backend_kit import BackendKit


@pytest.mark.usefixtures("ray_cluster")
class TestOpenRLHFConforms(BackendKit):
    def make_backend(self) -> OpenRLHFBackend:
        return OpenRLHFBackend()

    def make_job(self, run_dir: Path) -> TrainingJob:
        return toy_job(run_dir)

    def gradients(self) -> tuple[FloatArray, FloatArray]:
        """Of OpenRLHF's policy trainer under DeepSpeed on rows of several steps, and of the same loss by hand."""
        with TemporaryDirectory() as folder:
            case = DeepSpeedCase("gradient", stage=2, micro=2)
            (found,) = run_ranks(sys.executable, cpu_environment(), Path(folder), [case], 1)["gradient"]
        wanted = reference_step(rows_of_round()).gradient
        both = [torch.cat([one[name].reshape(-1) for name in wanted]).numpy() for one in (found["gradient"], wanted)]
        return both[0], both[1]

    def test_rewritten_contexts_make_rows_of_their_own(self, trained) -> None:
        _, _, log = trained
        for _, metrics in log.updates:
            assert metrics["steps_per_episode"] == 2
            assert metrics["rows"] == 2 * metrics["episodes"], "every step has a row, since contexts are rewritten"
            assert metrics["optimizer_steps"] == 1
            assert metrics["logprob_gap"] < 0.05, "bfloat16 against float32"
            assert metrics["grad_norm"] > 0
