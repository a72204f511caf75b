"""Two gloo processes train exactly what one does, with different numbers of rows on each."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

WORKER = Path(__file__).with_name("ddp_worker.py")
SCENARIOS = (
    "token mean",
    "trajectory mean",
    "group over ranks",
    "two windows",
    "accumulation",
    "reward functions",
    "token tree",
    "trees cut",
    "idle rank",
    "separate critic",
    "shared critic",
    "critic, idle rank",
)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What one process and what two found, by scenario."""
    out = tmp_path_factory.mktemp("ddp") / "two.pt"
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc_per_node=2",
        str(WORKER),
        str(out),
    ]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    two = subprocess.Popen([*command, "2"], env=quiet, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    spec = importlib.util.spec_from_file_location("ddp_worker", WORKER)
    worker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(worker)
    one = worker.scenarios(1)
    said, _ = two.communicate(timeout=240)
    assert two.returncode == 0, said[-3000:]
    return one, torch.load(out, weights_only=False)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_rank_split_leaves_the_gradient_alone(both, scenario):
    one, two = (found[scenario]["gradients"] for found in both)
    assert len(one) == len(two) > 0
    for whole, split in zip(one, two, strict=True):
        assert whole.norm() > 0
        assert float((whole - split).norm() / whole.norm()) < 1e-5


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_figures_are_those_of_all_ranks(both, scenario):
    one, two = (found[scenario]["figures"] for found in both)
    timed = {"rollout_seconds", "step_seconds", "count/tokens/cached", "tree/token_ratio"}  # ranks share no tokens
    assert set(one) == set(two)
    assert {k: v for k, v in two.items() if k not in timed} == pytest.approx(
        {k: v for k, v in one.items() if k not in timed}, rel=1e-4, abs=1e-5
    )
    assert both[0][scenario]["ledger"] == both[1][scenario]["ledger"]


def test_a_rank_without_rows_waits_for_nobody(both):
    figures = both[1]["idle rank"]["figures"]
    assert figures["episodes/failed"] == 4
    assert figures["episodes"] == 4


@pytest.mark.parametrize("scenario", ["token tree", "trees cut"])
def test_trees_on_two_ranks_train_what_rows_on_one_do(both, scenario):
    rows, trees = both[0]["token mean"]["gradients"][0], both[1][scenario]["gradients"][0]
    assert float((rows - trees).norm() / rows.norm()) < 2e-6
