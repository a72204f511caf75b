"""Both recipes train for a few updates with their own small model, and their run files are certified."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agentr1_core.config import load_config
from agentr1_core.errors import PluginError
from agentr1_core.job.build import find_recipe
from agentr1_core.plugins import PluginManager

#: Small enough for a test; the rest is the run file's own.
SMALL = {
    "papers": ["--env.max_steps", "3", "--warm_start.max_steps", "40", "--warm_start.warmup_steps", "5"],
    "webshop": ["--env.max_turns", "4", "--warm_start.max_steps", "4"],
}
BRIEF = [
    *("--warm_start.demonstrations", "64"),
    *("--warm_start.per_device_train_batch_size", "8", "--data.train_size", "16", "--data.eval_size", "2"),
    *("--algorithm.prompts_per_update", "2", "--algorithm.group_size", "4"),
]


def agentr1(*arguments):
    command = [str(Path(sys.executable).with_name("agentr1")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("recipe", SMALL)
def test_a_few_updates_and_the_certificate(recipe, tmp_path):
    folder = tmp_path / "run"
    small = [*SMALL[recipe], *BRIEF]
    agentr1("train", recipe, "--run-dir", str(folder), *small, "--algorithm.updates", "2", "--report.enabled", "false")
    summary = json.loads((folder / "summary.json").read_text())
    ledger = summary["ledger"]
    assert summary["updates"] == 2
    assert ledger["sampled"] == ledger["trained"] + ledger["masked"] + ledger["dropped"] > 0
    updates = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert max(update["logprob_gap_max"] for update in updates) < 1e-4
    assert sum(update["count/prompts/rerendered/rewritten"] for update in updates) > 0
    model = ["--model", str(folder / "checkpoint")]
    found = json.loads(agentr1("certify", recipe, *small, *model, "--groups", "1", "--json"))
    assert found["passed"], found


@pytest.mark.parametrize("recipe", SMALL)
def test_run_files_say_what_recipe_and_environment_take(recipe):
    plugins = PluginManager.discover()
    offered = plugins.get("recipe", recipe)
    for name in offered.run_files():
        config = load_config(f"{recipe}/{name}", [], plugins)
        assert isinstance(find_recipe(config, plugins), offered)
        plugins.get("env", config.env.name)(**config.env.settings)


@pytest.mark.parametrize(("recipe", "module"), [("papers", "Stemmer"), ("webshop", "rapidfuzz"), ("webshop", "ijson")])
def test_a_missing_library_is_told_with_its_extra(recipe, module, monkeypatch):
    offered = PluginManager.discover().get("recipe", recipe)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PluginError, match=rf"{module}(?s:.)*pip install 'agentr1-recipes\[{recipe}\]'"):
        offered()
