"""The quick-start task trains with a real vLLM engine, driven by the TRL backend as a run file names it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "more",
    [
        {},
        {
            "backend.lora": "{r: 4, target_modules: [q_proj, v_proj], init_lora_weights: false}",
            "engine.lora": "adapter",
            "engine.weight_sync": "broadcast",
        },
    ],
    ids=["files", "adapter"],
)
def test_the_quick_start_trains_a_few_updates(address, base, tmp_path, more):
    url, token = address
    folder = tmp_path / "run"
    command = [str(Path(sys.executable).with_name("agentr1")), "train", "quickstart", "--run-dir", str(folder)]
    changes = {
        "model": str(base),
        "warm_start.when": "always",
        "warm_start.max_steps": 30,
        "engine.name": "vllm",
        "engine.urls": f"[{url}]",
        "algorithm.updates": 3,
        "algorithm.prompts_per_update": 4,
        "data.eval_size": 4,
        **more,
    }
    for name, value in changes.items():
        command += [f"--{name}", str(value)]
    environment = {**os.environ, "AGENTR1_VLLM_TOKEN": token}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    updates = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(updates) == 3
    assert max(update["logprob_gap_max"] for update in updates) < 1e-4
    assert all(update["episodes/failed"] == 0 for update in updates)
    ledger = json.loads((folder / "summary.json").read_text())["ledger"]
    assert ledger["sampled"] == ledger["trained"] + ledger["masked"] + ledger["dropped"] > 0
