"""Real OpenRLHF, DeepSpeed and Ray on the CPU. They run in an environment of their own: ``make test-openrlhf``."""

from __future__ import annotations

import os
import sys
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
        "CUDA_VISIBLE_DEVICES": "",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
    }


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    return cpu_environment()


@pytest.fixture(scope="session")
def python() -> str:
    return sys.executable
