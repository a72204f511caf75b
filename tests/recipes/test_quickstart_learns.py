"""The quick start as its user runs it: the agent learns, and a control with random credit does not."""

import json
import subprocess
import sys
from pathlib import Path

import pytest


def train(folder, *overrides):
    """One run in a process of its own, without a network: its summary and what it printed."""
    command = [str(Path(sys.executable).with_name("agentr1")), "train", "quickstart", "--run-dir", str(folder)]
    done = subprocess.run([*command, *overrides], capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "summary.json").read_text()), done.stdout


@pytest.fixture(scope="module")
def learnt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("quickstart") / "run"
    return folder, *train(folder)


def test_success_on_held_out_tasks_rises(learnt):
    _, summary, printed = learnt
    assert summary["success_before"] < 0.5
    assert summary["success_after"] > summary["success_before"] + 0.3
    assert summary["updates"] == 30
    assert f"{summary['success_after']:.3f}" in printed
    assert "report.html" in "".join(printed.split())


def test_every_token_is_accounted_for_and_was_sampled_by_the_policy_in_training(learnt):
    folder, summary, _ = learnt
    ledger = summary["ledger"]
    assert ledger["sampled"] == ledger["trained"] + ledger["masked"] + ledger["dropped"] > 0
    updates = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert sum(update["ledger/sampled"] for update in updates) == ledger["sampled"]
    assert max(update["logprob_gap_max"] for update in updates) < 1e-4
    assert any((folder / "tensorboard").rglob("events.*"))


def test_random_credit_teaches_nothing(learnt, tmp_path):
    folder, _, _ = learnt
    summary, _ = train(
        tmp_path / "control",
        *("--model", str(folder / "warm_start")),
        *("--algorithm.shuffle_advantages", "true", "--algorithm.updates", "15"),
    )
    assert summary["success_after"] < summary["success_before"] + 0.1
