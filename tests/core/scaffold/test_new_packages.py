"""From ``agentr1 new`` to a rollout: for each kind, the package is written, installed, tested, listed and used."""

import json
import subprocess
import sys

import pytest

from agentr1_core.testing import call

NAMES = {"tool": "acme-count", "env": "acme-guess", "engine": "acme-dice", "estimator": "acme-credit"}

RUN_FILES = {
    "tool": "{tools: [acme_count], data: {train: tasks.jsonl}, model: none, engine: scripted}",
    "env": "{env: acme_guess, data: {train: tasks.jsonl}, model: none, engine: scripted}",
    "engine": "{data: {train: tasks.jsonl}, model: none, engine: acme_dice}",
    "estimator": "{data: {train: tasks.jsonl}, model: none, engine: scripted, reward: [contains_answer],"
    " algorithm: {estimator: {name: acme_credit, limit: 0.25}}}",
}

USE = """
import asyncio, json, sys
from pathlib import Path
from pydantic import BaseModel
from agentr1_core.config import load_config
from agentr1_core.credit import CreditBatch
from agentr1_core.job import rollouts as building
from agentr1_core.job.offers import find
from agentr1_core.plugins import PluginManager, hookimpl
from agentr1_core.testing import ScriptedEngine
from agentr1_core.testing.play import Characters, PlainRenderer
import agentr1_core.render

ANSWERS = json.loads(Path("answers.json").read_text())

class Scripted(ScriptedEngine):
    class Settings(BaseModel):
        model: str | None = None
    def __init__(self, settings):
        turns = iter(range(100))
        super().__init__(Characters(), lambda prompt: ANSWERS[next(turns) % len(ANSWERS)])

class Here:
    @hookimpl
    def agentr1_engines(self):
        return {"scripted": Scripted}

building.load_tokenizer = lambda model: Characters()
agentr1_core.render.create_chat_renderer = lambda tokenizer, **_: PlainRenderer()

plugins = PluginManager.discover()
plugins.register(Here(), "here")
config = load_config("run.yaml", [("data.shuffle", "false")], plugins)
job = building.build_rollouts(config, plugins, Path("run"), split="train")

async def collect():
    try:
        return await job.rollouts.collect(job.tasks, 2, training=False)
    finally:
        await job.rollouts.close()

collection = asyncio.run(collect())
estimator = find(plugins, "estimator", config.algorithm.estimator.name, "algorithm.estimator")
credit = estimator(config.algorithm.estimator.settings).estimate(CreditBatch.from_groups(collection.groups))
first = collection.trajectories[0]
print("USED " + json.dumps({
    "feedback": [message["content"] for step in first.steps for message in step.feedback],
    "returns": [trajectory.ret for trajectory in collection.trajectories],
    "tokens": first.n_sampled,
    "engine": job.rollouts.policy.engine.name,
    "estimator": estimator.__name__,
    "advantages": sorted(set(credit.advantages.tolist())),
}))
"""

ANSWERS = {
    "tool": [call("acme_count", text="one two three"), "Three."],
    "env": ["50", "30"],
    "engine": [],
    "estimator": ["It is Paris.", "No idea."],
}
TASK = {"prompt": "Paris?", "secret": 30, "reward_model": {"style": "rule", "ground_truth": "Paris"}}


@pytest.fixture(scope="module")
def packages(workshop):
    """The folder of a new package of each kind, all of them installed."""
    folders = {}
    for kind, name in NAMES.items():
        said = workshop.run("agentr1", "new", kind, name)
        assert "pip install -e" in said
        folders[kind] = workshop.folder / name
    # One call of pip takes no longer for four packages than for one.
    editable = [part for folder in folders.values() for part in ("-e", folder)]
    workshop.run("pip", "install", *editable, "--no-deps", "--no-build-isolation")
    return folders


@pytest.mark.parametrize("kind", NAMES)
def test_its_own_tests_pass(workshop, packages, kind):
    said = workshop.run("pytest", "-p", "no:cacheprovider", cwd=packages[kind])
    assert "passed" in said
    assert "failed" not in said


def test_it_is_a_whole_project(packages):
    for folder in packages.values():
        files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        assert files >= {"pyproject.toml", "README.md", "LICENSE", ".gitignore", ".github/workflows/ci.yml"}


def test_the_new_packages_are_listed(workshop, packages):
    listed = {info["dist"]: info for info in json.loads(workshop.run("agentr1", "plugins", "--json"))}
    for kind, name in NAMES.items():
        assert listed[name]["offers"] == {kind: [name.replace("-", "_")]}
        assert listed[name]["broken"] is None


@pytest.mark.parametrize("kind", NAMES)
def test_a_rollout_uses_it_by_name(workshop, packages, kind):
    folder = workshop.folder / f"use-{kind}"
    folder.mkdir()
    (folder / "tasks.jsonl").write_text(json.dumps(TASK) + "\n")
    (folder / "answers.json").write_text(json.dumps(ANSWERS[kind]))
    (folder / "run.yaml").write_text(RUN_FILES[kind])
    (folder / "use.py").write_text(USE)
    said = workshop.run("python", "use.py", cwd=folder)
    used = json.loads(said.partition("USED ")[2])
    if kind == "tool":
        assert used["feedback"][0] == "3"
    elif kind == "env":
        assert used["feedback"][-1].startswith("Guess a number from 1 to ")
        assert max(used["returns"]) == 1.0
    elif kind == "engine":
        assert used["engine"] == "acme_dice"
        assert used["tokens"] > 0
    else:
        assert used["estimator"] == "AcmeCredit"
        assert used["advantages"] == [-0.25, 0.25]


def test_the_new_packages_are_well_formed(packages):
    for folder in packages.values():
        for command in (["check"], ["format", "--check"]):
            ruff = [sys.executable, "-m", "ruff", *command, "--no-cache"]
            done = subprocess.run(ruff, cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout
