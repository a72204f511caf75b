"""One optimiser step of OpenRLHF's policy trainer under a real DeepSpeed, against the same step in plain torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from deepspeed_ranks import run_ranks
from step_case import DeepSpeedCase, reference_step, rows_of_round, tiny_model

ALONE = (
    DeepSpeedCase("zero-1", stage=1, micro=2),
    DeepSpeedCase("zero-2-offload", stage=2, micro=3, offload=True),
    DeepSpeedCase("zero-3", stage=3, micro=2),
    DeepSpeedCase("micro-batches-of-padding", stage=1, micro=1, forward=16),
    DeepSpeedCase("three-steps", stage=2, micro=2, steps=3),
)
TOGETHER = (DeepSpeedCase("zero-2-two-processes", stage=2, micro=2),)


@pytest.fixture(scope="module")
def found(
    python: str, environment: Mapping[str, str], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[dict[str, Any]]]:
    folders = [tmp_path_factory.mktemp("deepspeed") for _ in range(2)]
    alone = run_ranks(python, environment, folders[0], ALONE, 1)
    return alone | run_ranks(python, environment, folders[1], TOGETHER, 2)


def distance(found: Mapping[str, torch.Tensor], wanted: Mapping[str, torch.Tensor]) -> float:
    """Euclidean distance as a share of the norm of ``wanted``."""
    apart = sum(float((found[name] - wanted[name]).double().square().sum()) for name in wanted)
    size = sum(float(wanted[name].double().square().sum()) for name in wanted)
    return (apart / size) ** 0.5


@pytest.mark.parametrize("case", [case.name for case in (*ALONE, *TOGETHER) if case.steps == 1])
def test_one_step_is_that_of_the_reference(found: dict[str, list[dict[str, Any]]], case: str) -> None:
    wanted = reference_step(rows_of_round())
    start = {name: p.detach() for name, p in tiny_model().named_parameters()}
    assert distance(start, wanted.weights) > 1e-4, "the reference does not move, which anything would match"
    for rank in found[case]:
        assert rank["steps"] == 1
        assert rank["status"]["agentr1/loss"] == pytest.approx(wanted.loss, rel=1e-5)
        assert rank["status"]["actor_grad_norm"] == pytest.approx(wanted.grad_norm, rel=1e-5)
        assert distance(rank["gradient"], wanted.gradient) < 1e-5
        assert distance(rank["weights"], wanted.weights) < 1e-5


def test_a_round_takes_the_steps_it_is_told_whatever_its_rows(found: dict[str, list[dict[str, Any]]]) -> None:
    (rank,) = found["three-steps"]
    assert rank["steps"] == 3
    assert all(torch.isfinite(p).all() for p in rank["weights"].values())
    assert rank["status"]["agentr1/loss"] != pytest.approx(reference_step(rows_of_round()).loss)
