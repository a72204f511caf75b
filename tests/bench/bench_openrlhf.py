"""The quick start on the OpenRLHF backend, without a GPU: `.venvs/openrlhf/bin/python tests/bench/bench_openrlhf.py`.

OpenRLHF has no warm start, so the model is the one that `make quickstart` warms up. What stands in for GPUs is that of
the tests; `make .venvs/.openrlhf` makes the environment, and `make .venvs/.openrlhf-vllm` one with a real vLLM for
`--own-engines`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1] / "servers" / "openrlhf"
BACKEND = (
    "ds: {attn_implementation: eager}, train.micro_batch_size: 32, rollout.micro_batch_size: 32, "
    "actor: {adam.lr: 4.0e-4, lr_scheduler: constant, lr_warmup_ratio: 0.0}"
)
OWN_ENGINES = "vllm.sync_backend: gloo, train.colocate_all: false, actor.num_gpus_per_node: 1"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("runs/quickstart/warm_start"))
    parser.add_argument("--updates", type=int, default=12)
    parser.add_argument("--run-dir", type=Path, default=Path("runs/bench-openrlhf"))
    parser.add_argument("--own-engines", action="store_true", help="sample with OpenRLHF's rollout workers")
    told = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    from conftest import cpu_environment
    from ray_head import ray_head

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that Ray ends too
    environment = cpu_environment()
    overrides = {
        "model": told.model.resolve(),
        "warm_start.when": "never",
        "data.eval_size": 64,
        "algorithm.updates": told.updates,
        "backend": f"{{name: openrlhf, {BACKEND}}}",
    }
    if told.own_engines:
        overrides["engine"] = "{name: openrlhf, enforce_eager: true}"
        overrides["backend"] = f"{{name: openrlhf, {BACKEND}, {OWN_ENGINES}}}"
    words = [str(word) for name, value in overrides.items() for word in (f"--{name}", value)]
    agentr1 = Path(sys.executable).with_name("agentr1")
    with tempfile.TemporaryDirectory() as logs, ray_head(environment, Path(logs) / "head.log") as address:
        command = [agentr1, "train", "quickstart", *words, "--run-dir", str(told.run_dir), "--overwrite"]
        return subprocess.call(command, env={**environment, "RAY_ADDRESS": address})


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(main())
