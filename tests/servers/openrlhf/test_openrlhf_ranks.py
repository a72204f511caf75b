"""A launch with two ranks of the policy, a reference model beside them, and several optimiser steps in a round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from toy_run import Observer, toy_config, toy_job

from agentr1_backend_openrlhf.backend import OpenRLHFBackend


def test_rows_are_shared_out_over_ranks_and_optimiser_steps(ray_cluster: str, tmp_path: Path) -> None:
    backend = toy_config()["backend"] | {
        "train.batch_size": 12,  # trajectories of an optimiser step, half of a round's
        "train.micro_batch_size": 3,
        "rollout.micro_batch_size": 2,
        "algo.kl": {"init_coef": 0.01, "use_loss": True},
    }
    backend["actor"] = {**backend["actor"], "num_gpus_per_node": 2}
    job = toy_job(
        tmp_path / "run",
        backend=backend,
        env={"name": "toy_env:EvenTokens", "turns": 3},
        algorithm={"prompts_per_update": 6, "merge": "none", "updates": 2},
    )
    observer = Observer()
    result = OpenRLHFBackend().train(replace(job, hooks=observer))

    assert result.updates == 2
    for metrics in observer.updates:
        assert metrics["rows"] == 3 * metrics["episodes"] == 72
        assert metrics["optimizer_steps"] == 2
        assert metrics["grad_norm"] > 0
        assert metrics["logprob_gap"] < 0.05
    assert observer.updates[1]["kl"] > observer.updates[0]["kl"] > 0, "the policy leaves its reference"
