"""Real OpenRLHF, DeepSpeed and Ray on the CPU. They run in an environment of their own: ``make test-openrlhf``."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from ray_head import ray_head

HERE = Path(__file__).parent
SHIM = HERE / "cpu_shim"
VLLM_ABSENT = SHIM / "vllm_absent"
#: Whether the environment has the real vLLM, which then samples wherever OpenRLHF's own engines do.
HAS_VLLM = find_spec("vllm") is not None

if not HAS_VLLM:
    sys.path.append(str(VLLM_ABSENT))


def cpu_environment() -> dict[str, str]:
    """The environment of a process that runs OpenRLHF without a GPU, with vLLM only where it is installed."""
    path = [str(HERE), str(SHIM), *([] if HAS_VLLM else [str(VLLM_ABSENT)])]
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {
        **inherited,  # bytecode is kept: a dozen processes import the same large libraries
        "PYTHONPATH": os.pathsep.join(path),
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "DS_ACCELERATOR": "cpu",
        "HF_HUB_OFFLINE": "1",
        # OpenRLHF compiles its entropy, which takes a C++ compiler a minute on a CPU. vLLM needs `enforce_eager` then.
        "TORCHDYNAMO_DISABLE": "1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB; it would take a share of the machine's memory
        "RAY_DEDUP_LOGS": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
    }


@pytest.fixture(scope="session", autouse=True)
def environment() -> Iterator[dict[str, str]]:
    """Also set here, for launches that inherit it."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in cpu_environment().items():
            patch.setenv(name, value)
        yield dict(os.environ)


@pytest.fixture(scope="session")
def ray_cluster(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Ray head that launches join, with GPUs that are only counted; its address, which launches inherit."""
    log = tmp_path_factory.mktemp("ray") / "head.log"
    with ray_head(environment, log) as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_ADDRESS", address)
        yield address


@pytest.fixture(scope="session")
def python() -> str:
    return sys.executable
