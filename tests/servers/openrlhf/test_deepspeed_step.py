"""One optimiser step of OpenRLHF's policy trainer under a real DeepSpeed, against the same step in plain torch."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path

import pytest
import torch
from step_case import reference_step, rows_of_round

HERE = Path(__file__).parent
TIMEOUT_S = 600


def run_ranks(
    python: str,
    environment: dict[str, str],
    folder: Path,
    *,
    world: int,
    stage: int,
    micro: int,
    steps: int = 1,
    more=(),
) -> list[dict]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    output = folder / f"zero{stage}"
    command = [python, str(HERE / "deepspeed_worker.py"), str(stage), str(micro), str(steps), str(output), *more]
    ranks = []
    try:
        for rank in range(world):
            where = {
                "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
                "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            }  # fmt: skip
            log = (folder / f"rank-{rank}.log").open("w")
            ranks.append(subprocess.Popen(command, env={**environment, **where}, stdout=log, stderr=subprocess.STDOUT))
            log.close()
        for rank, process in enumerate(ranks):
            assert process.wait(TIMEOUT_S) == 0, (folder / f"rank-{rank}.log").read_text()[-4000:]
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.wait()
    return [torch.load(f"{output}-{rank}.pt", weights_only=False) for rank in range(world)]


def distance(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> float:
    """Euclidean distance as a share of the norm of ``wanted``."""
    apart = sum(float((found[name] - wanted[name]).double().square().sum()) for name in wanted)
    size = sum(float(wanted[name].double().square().sum()) for name in wanted)
    return (apart / size) ** 0.5


@pytest.mark.parametrize(
    ("world", "stage", "micro", "more"),
    [
        pytest.param(1, 1, 2, (), id="zero-1"),
        pytest.param(1, 2, 3, ("--offload",), id="zero-2-offload"),
        pytest.param(2, 2, 2, (), id="zero-2-two-processes"),
        pytest.param(1, 3, 2, (), id="zero-3"),
    ],
)
def test_one_step_is_that_of_the_reference(python, environment, tmp_path, world, stage, micro, more):
    wanted = reference_step(rows_of_round())
    ranks = run_ranks(python, environment, tmp_path, world=world, stage=stage, micro=micro, more=more)
    from step_case import tiny_model

    start = {name: p.detach() for name, p in tiny_model().named_parameters()}
    moved = distance(start, wanted.weights)
    assert moved > 1e-4, "the reference does not move, which anything would match"
    for found in ranks:
        assert found["steps"] == 1
        assert found["status"]["agentr1/loss"] == pytest.approx(wanted.loss, rel=1e-5)
        assert found["status"]["actor_grad_norm"] == pytest.approx(wanted.grad_norm, rel=1e-5)
        assert distance(found["weights"], wanted.weights) < 1e-5


def test_a_round_takes_the_steps_it_is_told_whatever_its_rows(python, environment, tmp_path):
    found = run_ranks(python, environment, tmp_path, world=1, stage=2, micro=2, steps=3)[0]
    assert found["steps"] == 3
    assert all(torch.isfinite(p).all() for p in found["weights"].values())
