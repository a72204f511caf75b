"""The small ALFWorld run on real games, as its user runs it, only shorter: trained with GiGPO, and certified."""

import json
import os

import pytest

from agentr1_core.cli.main import main

SHORT = [
    *("--warm_start.demonstrations", "200", "--warm_start.max_steps", "20", "--data.eval_size", "0"),
    *("--algorithm.updates", "2", "--algorithm.prompts_per_update", "2", "--algorithm.group_size", "3"),
    *("--env.max_turns", "4", "--env.invalid_reward", "-0.1", "--report.enabled", "false"),
]


@pytest.fixture
def there(python):
    """Where ALFWorld is."""
    return [] if python is None else ["--env.python", python]


def test_it_trains_with_gigpo_and_accounts_for_every_token(there, tmp_path):
    run = tmp_path / "run"
    assert main(["train", "alfworld", "--run-dir", str(run), *SHORT, *there]) == 0
    summary = json.loads((run / "summary.json").read_text())
    ledger = summary["ledger"]
    assert ledger["sampled"] == ledger["trained"] + ledger["masked"] + ledger["dropped"] > 0
    updates = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [sum(n for name, n in each.items() if name.startswith("count/games/")) for each in updates] == [6, 6]
    assert max(update["logprob_gap_max"] for update in updates) < 1e-3
    assert any(update["grad_norm"] > 0 for update in updates)


def test_it_is_certified(there, real_data, capsys):
    where = ["--recipe.data", str(real_data)]
    assert main(["certify", "alfworld", "-n", "1", *SHORT, *where, *there]) == 0, capsys.readouterr()
    with capsys.disabled():
        print(f"\ncertified on real games of {os.environ['AGENTR1_DATA']}")
