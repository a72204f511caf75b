"""Every run file of every recipe on offer is read, and names only what is on offer."""

import sys
from pathlib import Path

import pytest

from agentr1_core.config import load_config
from agentr1_core.errors import PluginError
from agentr1_core.job import build
from agentr1_core.plugins import PluginManager

PLUGINS = PluginManager.discover()


def run_files():
    for recipe in PLUGINS.names("recipe"):
        try:
            files = PLUGINS.get("recipe", recipe).run_files()
        except PluginError:  # another distribution's recipe, or one whose extra is missing here
            continue
        for variant in files:
            yield f"{recipe}/{variant}"


@pytest.mark.parametrize("source", run_files())
def test_a_run_file_is_read_and_names_what_is_on_offer(source):
    config = load_config(source, plugins=PLUGINS)
    assert config.model
    assert config.recipe is not None
    assert config.recipe.name == source.partition("/")[0]
    named = [("tool", tool.name) for tool in config.tools] + [("reward", reward.name) for reward in config.reward]
    named += [("backend", config.backend.name), ("engine", config.engine.name)]
    named.append(("estimator", config.algorithm.estimator.name))
    if config.flow is not None:
        named.append(("flow", config.flow.name))
    elif config.env is not None:
        named.append(("env", config.env.name))
    for kind, name in named:
        assert name in PLUGINS.names(kind) or ":" in name, (kind, name)


@pytest.mark.parametrize("recipe", ["gsm8k", "multihop", "papers", "webshop", "alfworld", "household"])
def test_a_recipe_runs_on_two_backends_from_a_laptop_to_eight_gpus(recipe):
    variants = list(PLUGINS.get("recipe", recipe).run_files())
    assert variants[0] == "trl-tiny"  # what `agentr1 train NAME` starts
    sizes = ("tiny", "1gpu", "8gpu")
    assert {f"{backend}-{size}" for backend in ("trl", "openrlhf") for size in sizes} <= set(variants)
    for variant in variants:
        name = load_config(f"{recipe}/{variant}", plugins=PLUGINS).backend.name
        assert name == ("openrlhf" if variant.startswith("openrlhf") else "trl")


@pytest.mark.parametrize("source", [source for source in run_files() if "openrlhf" in source])
def test_openrlhf_takes_what_a_run_file_asks_of_it(source, monkeypatch, tmp_path):
    """Its launch is written; only data, model and other interpreters, which are not here, are stood in for."""
    elsewhere = [("env.python", sys.executable)] if source.startswith("alfworld") else []
    config = load_config(source, elsewhere, plugins=PLUGINS)
    recipe = PLUGINS.get("recipe", config.recipe.name)()
    tasks = recipe.tasks("train", 4, seed=0)
    monkeypatch.setattr(build, "load_train_and_eval", lambda config, recipe: (tasks, tasks[:2]))
    monkeypatch.setattr(build, "find_model", lambda config, recipe, run_dir, resume: str(tmp_path))
    monkeypatch.setattr(build, "find_recipe", lambda config, plugins: recipe)
    job = build.build_job(config, PLUGINS, Path(tmp_path))
    PLUGINS.get("backend", "openrlhf")().check(job)
