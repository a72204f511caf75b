"""The tiny run of multi-hop QA for a few updates on TRL: it plays, its ledger balances, and it is certified."""

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
    folder = tmp_path_factory.mktemp("multihop") / "run"
    train(["multihop", *SHORT], PluginManager.discover(), run_dir=folder)
    return folder


def test_every_token_is_accounted_for_and_was_sampled_by_the_policy_in_training(run):
    summary = json.loads((run / "summary.json").read_text())
    ledger = summary["ledger"]
    assert summary["updates"] == 2
    assert ledger["sampled"] == ledger["trained"] + ledger["masked"] + ledger["dropped"] > 0
    updates = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert max(update["logprob_gap_max"] for update in updates) < 1e-4
    assert max(update["grad_norm"] for update in updates) > 0


def test_episodes_search_the_real_passages(run):
    episodes = [json.loads(line) for line in (run / "trajectories.jsonl").read_text().splitlines()]
    answers = [message["content"] for episode in episodes for step in episode["steps"] for message in step["feedback"]]
    assert any(answer.startswith('{"results": [') for answer in answers)
    assert all(episode["rewards"].keys() == {"qa_em", "answer_format"} for episode in episodes)


def test_it_is_certified(run, capsys):
    model = ("--model", str(run / "warm_start"))
    assert certify(["multihop", *model, *SHORT], PluginManager.discover(), n_groups=2, as_json=True)
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    measured = [check for check in found["checks"] if check["value"] is not None]
    assert len(measured) >= 10
    assert all(check["passed"] for check in measured)
