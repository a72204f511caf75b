"""The household recipe's run files, and its small one as its user runs it, only shorter."""

import json

import pytest

from agentr1_core.cli.main import main
from agentr1_core.config import load_config
from agentr1_core.plugins import PluginManager
from agentr1_recipes.alfworld.recipe import Alfworld
from agentr1_recipes.household.recipe import Household

SHORT = [
    *("--warm_start.demonstrations", "400", "--warm_start.max_steps", "25", "--data.eval_size", "4"),
    *("--algorithm.updates", "2", "--algorithm.prompts_per_update", "2", "--algorithm.group_size", "4"),
    *("--env.max_turns", "6", "--report.enabled", "false", "--env.invalid_reward", "-0.1"),
]


@pytest.mark.parametrize("recipe", [Alfworld, Household])
def test_every_run_file_is_complete(recipe):
    plugins = PluginManager.discover()
    for name, path in recipe.run_files().items():
        config = load_config(f"{recipe.name}/{name}", [], plugins)
        assert path.is_file()
        assert (config.recipe.name, config.env.name) == (recipe.name, recipe.name)
        assert config.backend.name == name.split("-")[0]
        assert config.algorithm.estimator.name == "gigpo"
        # The environment's own limit must be the one that is reached.
        assert config.rollout.max_steps >= config.env.settings["max_turns"]
        if recipe is Alfworld:
            assert config.rollout.concurrency == config.env.settings["processes"]


def test_it_trains_with_gigpo_and_accounts_for_every_token(tmp_path):
    run = tmp_path / "run"
    assert main(["train", "household", "--run-dir", str(run), *SHORT]) == 0
    summary = json.loads((run / "summary.json").read_text())
    ledger = summary["ledger"]
    assert ledger["sampled"] == ledger["trained"] + ledger["masked"] + ledger["dropped"] > 0
    updates = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(updates) == 2
    for update in updates:
        assert update["count/games/pick_and_place_simple"] == 8
        assert update["logprob_gap_max"] < 1e-3
    assert any(update["grad_norm"] > 0 for update in updates)


def test_it_is_certified(capsys):
    assert main(["certify", "household", "-n", "1", *SHORT]) == 0, capsys.readouterr()
