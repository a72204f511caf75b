"""The tiny run of GSM8K for a few updates on TRL: it plays, its ledger balances, and it is certified."""

import json

import pytest

from agentr1_core.cli.certify import certify
from agentr1_core.cli.train import train
from agentr1_core.plugins import PluginManager

SHORT = (
    *(
        "--warm_start.max_steps",
        "70",
        "--warm_start.demonstrations",
        "1200",
        "--warm_start.per_device_train_batch_size",
    ),
    *("16", "--algorithm.updates", "2", "--algorithm.prompts_per_update", "4", "--data.eval_size", "8"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gsm8k") / "run"
    train(["gsm8k", *SHORT], PluginManager.discover(), run_dir=folder)
    return folder


def test_every_token_is_accounted_for_and_was_sampled_by_the_policy_in_training(run):
    summary = json.loads((run / "summary.json").read_text())
    ledger = summary["ledger"]
    assert summary["updates"] == 2
    assert ledger["sampled"] == ledger["trained"] + ledger["masked"] + ledger["dropped"] > 0
    updates = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert max(update["logprob_gap_max"] for update in updates) < 1e-4
    assert max(update["grad_norm"] for update in updates) > 0


def test_episodes_call_the_real_calculator(run):
    episodes = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    steps = [step for episode in episodes for step in episode["steps"] if step["tool_calls"]]
    assert any(message["content"].isdigit() for step in steps for message in step["feedback"])
    assert all(episode["rewards"].keys() == {"gsm8k_strict"} for episode in episodes)


def test_it_is_certified(run, capsys):
    model = ("--model", str(run / "warm_start"))
    assert certify(["gsm8k", *model, *SHORT], PluginManager.discover(), n_groups=2, as_json=True)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    measured = [check for check in found["checks"] if check["value"] is not None]
    assert len(measured) >= 10
    assert all(check["passed"] for check in measured)
