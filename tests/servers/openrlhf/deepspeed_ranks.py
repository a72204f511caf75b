"""Starts the ranks of ``deepspeed_worker`` and collects what each found."""

from __future__ import annotations

import json
import socket
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from step_case import DeepSpeedCase

HERE = Path(__file__).parent
TIMEOUT_S = 900


def run_ranks(
    python: str, environment: Mapping[str, str], folder: Path, cases: Sequence[DeepSpeedCase], world: int
) -> dict[str, list[dict[str, Any]]]:
    """What each rank found, by case."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    told = json.dumps([asdict(case) for case in cases])
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(world):
            where = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
            with (folder / f"rank-{rank}.log").open("wb") as log:
                ranks.append(
                    subprocess.Popen(
                        [python, str(HERE / "deepspeed_worker.py"), told, str(folder)],
                        env={**environment, "MASTER_ADDR": "127.0.0.1", **{k: str(v) for k, v in where.items()}},
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                )
        for rank, process in enumerate(ranks):
            assert process.wait(TIMEOUT_S) == 0, (folder / f"rank-{rank}.log").read_text()[-4000:]
    finally:
        for process in ranks:
            if process.poll() is None:
                process.kill()
                process.wait()

    def load(case: DeepSpeedCase, rank: int) -> dict[str, Any]:
        found: dict[str, Any] = torch.load(folder / f"{case.name}-{rank}.pt", weights_only=False)
        return found

    return {case.name: [load(case, rank) for rank in range(world)] for case in cases}
