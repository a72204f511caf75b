"""The quick-start task trains with a real SGLang engine, driven by the TRL backend as a run file names it."""

import json
import os
import subprocess
import sys
from pathlib import Path


def test_the_quick_start_trains_a_few_updates(address, base, tmp_path):
    url, token = address
    folder = tmp_path / "run"
    command = [str(Path(sys.executable).with_name("agentr1")), "train", "quickstart", "--run-dir", str(folder)]
    changes = {
        "model": str(base),
        "warm_start.when": "always",
        "warm_start.max_steps": 30,
        "engine.name": "sglang",
        "engine.urls": f"[{url}]",
        "algorithm.updates": 3,
        "algorithm.prompts_per_update": 4,
        "data.eval_size": 4,
    }
    for name, value in changes.items():
        command += [f"--{name}", str(value)]
    environment = {**os.environ, "AGENTR1_SGLANG_TOKEN": token}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    updates = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert len(updates) == 3
    assert max(update["logprob_gap_max"] for update in updates) < 1e-4
    assert all(update["episodes/failed"] == 0 for update in updates)
    ledger = json.loads((folder / "summary.json").read_text())["ledger"]
    assert ledger["sampled"] == ledger["trained"] + ledger["masked"] + ledger["dropped"] > 0
