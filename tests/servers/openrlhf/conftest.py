"""Real OpenRLHF, DeepSpeed and Ray on the CPU. They run in an environment of their own: ``make test-openrlhf``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SHIM = HERE / "cpu_shim"


def cpu_environment() -> dict[str, str]:
    """The environment of a process that runs OpenRLHF without a GPU and without vLLM."""
    path = [str(HERE), str(SHIM), str(SHIM / "vllm_absent")]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        # A busy machine starts Ray's own processes slowly.
        "RAY_raylet_start_wait_time_s": "600",
        "RAY_agent_register_timeout_ms": "600000",
        "RAY_worker_register_timeout_seconds": "600",
    }


@pytest.fixture(scope="session", autouse=True)
def environment() -> Iterator[dict[str, str]]:
    """Also set here, for launches that inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cpu_environment().items():
            patch.setenv(name, value)
        yield dict(os.environ)


@pytest.fixture(scope="session")
def python() -> str:
    return sys.executable
