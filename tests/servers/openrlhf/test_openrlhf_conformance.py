"""The backend through the conformance kit: launches of the real OpenRLHF with Ray and DeepSpeed on the CPU.

Episodes come through the core's collector with the embedded engine; OpenRLHF's own rollout workers are in
``test_openrlhf_own_engines``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from toy_run import toy_job

from agentr1_backend_openrlhf.backend import OpenRLHFBackend
from agentr1_core.backend import TrainingJob
from agentr1_core.testing.backend_kit import BackendKit


@pytest.mark.usefixtures("ray_cluster")
class TestOpenRLHFConforms(BackendKit):
    def make_backend(self) -> OpenRLHFBackend:
        return OpenRLHFBackend()

    def make_job(self, run_dir: Path) -> TrainingJob:
        return toy_job(run_dir)

    def test_rewritten_contexts_make_rows_of_their_own(self, trained) -> None:
        _, _, log = trained
        for _, metrics in log.updates:
            assert metrics["steps_per_episode"] == 2
            assert metrics["rows"] == 2 * metrics["episodes"], "every step has a row, since contexts are rewritten"
            assert metrics["optimizer_steps"] == 1
            assert metrics["logprob_gap"] < 0.05, "bfloat16 against float32"
            assert metrics["grad_norm"] > 0
