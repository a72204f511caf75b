"""OpenRLHF's own trainer with the agent of agentr1 as its ``--train.agent_func_path``, on a real vLLM.

Skipped where vLLM is missing: ``make test-openrlhf-vllm`` makes an environment that has its CPU build, and runs this
and ``test_openrlhf_own_engines`` there.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from conftest import HAS_VLLM
from ray_head import ray_head
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from toy_run import model_of_words, toy_config, toy_job

from agentr1_backend_openrlhf import RUN_VARIABLE
from agentr1_backend_openrlhf.command import launch_arguments
from agentr1_backend_openrlhf.prompts import write_prompts

TIMEOUT_S = 1200.0

pytestmark = pytest.mark.skipif(not HAS_VLLM, reason="vLLM is not installed beside OpenRLHF")


def scalars(folder: Path) -> dict[str, list[float]]:
    """What a run wrote for TensorBoard: the values of each name in order."""
    (file,) = folder.rglob("events.out.tfevents.*")
    events = EventAccumulator(str(file))
    events.Reload()
    return {name: [event.value for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


def test_a_stock_launch_trains_on_contexts_that_grow(environment: Mapping[str, str], tmp_path: Path) -> None:
    backend = toy_config()["backend"] | {"vllm.sync_backend": "gloo", "train.colocate_all": False}
    backend |= {"actor": {**backend["actor"], "num_gpus_per_node": 1}}
    job = toy_job(
        tmp_path / "run",
        model=str(model_of_words()),
        env={"name": "toy_env:EvenTokens", "turns": 3, "rewrites": False, "ends_at_noise": True},
        engine={"name": "openrlhf", "enforce_eager": True},
        backend=backend,
        algorithm={"updates": 8},
    )
    write_prompts(job)
    arguments = launch_arguments(job)
    arguments[arguments.index("--algo.advantage.estimator") + 1] = "group_norm"  # one of OpenRLHF's own

    told = {**environment, RUN_VARIABLE: str(tmp_path / "run" / "config.yaml")}
    with ray_head(told, tmp_path / "head.log") as address, (tmp_path / "launch.log").open("wb") as log:
        subprocess.run(
            [sys.executable, "-m", "openrlhf.cli.train_ppo_ray", *arguments],
            env={**told, "RAY_ADDRESS": address},
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=True,
        )

    found = scalars(tmp_path / "run" / "tensorboard")
    assert len(found["train/reward"]) == 8
    assert all(steps > 2 for steps in found["train/agentr1/steps"]), "contexts grow over several turns"
    assert all(norm > 0 for norm in found["train/actor_grad_norm"])
    assert all(abs(gap) < 1e-3 for gap in found["train/vllm_kl"]), "vLLM has the weights of the policy"
