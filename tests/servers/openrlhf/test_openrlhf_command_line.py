"""Launches of run files against OpenRLHF's own parser, and all it checks before it starts anything."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from agentr1_backend_openrlhf import AGENT_FILE
from agentr1_backend_openrlhf.checks import check_arguments
from agentr1_backend_openrlhf.command import known_options, launch_of
from agentr1_backend_openrlhf.command.openrlhf_parser import installed_source
from agentr1_backend_openrlhf.command.options import SHIPPED, to_json
from agentr1_backend_openrlhf.run import Run
from agentr1_backend_openrlhf.train import with_agent
from agentr1_core.config import load_config
from agentr1_core.job import build_job
from agentr1_core.plugins import PluginManager

EXAMPLES = Path(__file__).parents[3] / "examples" / "gpu"
Start = Callable[[Sequence[str]], Any]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """``start(arguments)``: the arguments that OpenRLHF's command line would train with, after all of its checks."""
    source = installed_source()
    assert source is not None
    # The one module that the checks import, from its file: importing its package would bring torch and DeepSpeed.
    name = "openrlhf.utils.config"
    spec = importlib.util.spec_from_file_location(name, source.parents[1] / "utils" / "config.py")
    assert spec is not None
    assert spec.loader is not None
    config = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(config)
    tree = ast.parse(source.read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    code = compile(ast.Module(block.body, []), str(source), "exec")

    def run(arguments: Sequence[str]) -> Any:
        trained: list[Any] = []
        scope = {"argparse": argparse, "os": os, "datetime": datetime, "train": trained.append}
        before, sys.argv = sys.argv, ["train_ppo_ray", *arguments]
        try:
            exec(code, scope)
        finally:
            sys.argv = before
        return trained[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, name, config)
        yield run


def launch(run_file: Path, folder: Path, *overrides: tuple[str, str]) -> Any:
    plugins = PluginManager.discover()
    config = load_config(run_file, [("data.train_size", "8"), *overrides], plugins)
    return launch_of(build_job(config, plugins, folder))


def test_the_shipped_list_is_that_of_the_installed_openrlhf() -> None:
    assert to_json(known_options().version, list(known_options())) == SHIPPED.read_text()


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("openrlhf_*gpu*.yaml")), ids=lambda path: path.stem)
def test_openrlhf_takes_the_examples(example: Path, tmp_path: Path, start: Start) -> None:
    args = start(launch(example, tmp_path).arguments)

    said = load_config(example)
    assert args.rollout.batch_size == said.algorithm.prompts_per_update
    assert args.rollout.n_samples_per_prompt == said.algorithm.group_size
    assert args.data.max_len == said.rollout.max_context
    assert args.vllm.num_engines == said.engine.settings["num_engines"]
    assert args.reward.remote_url == ["agent"]
    assert args.train.agent_func_path.endswith("agent.py")
    assert (args.critic.model_name_or_path is not None) == (said.algorithm.estimator.name == "step_gae")


@pytest.mark.parametrize(
    ("overrides", "path", "value"),
    [
        ([("backend.ds.zero_stage", "3"), ("backend.ds.param_dtype", "fp16")], "ds.zero_stage", 3),
        ([("backend.actor.adam.betas", "[0.8, 0.9]")], "actor.adam.betas", [0.8, 0.9]),
        ([("backend.actor", "{optim: muon, muon.nesterov: false}")], "actor.muon.nesterov", False),
        ([("backend.algo.kl", "{init_coef: 0.01, use_loss: true}")], "algo.kl.estimator", "k2"),
        (
            [("backend.ds.lora", "{rank: 8, target_modules: [q_proj, v_proj]}")],
            "ds.lora.target_modules",
            ["q_proj", "v_proj"],
        ),
        ([("sampling.temperature", "0.0001")], "rollout.temperature", 0.0001),
        ([("run.save_every", "7")], "ckpt.save_steps", 7),
    ],
)
def test_openrlhf_reads_what_a_run_file_says(
    tmp_path: Path, start: Start, overrides: list[tuple[str, str]], path: str, value: Any
) -> None:
    found = start(launch(EXAMPLES / "openrlhf_1gpu.yaml", tmp_path, *overrides).arguments)

    for part in path.split("."):
        found = getattr(found, part)
    assert found == value


def test_openrlhf_takes_the_existing_script(tmp_path: Path, start: Start) -> None:
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nprintf '%s\\0' \"$@\" > {tmp_path / 'words'}\n")
    python.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([EXAMPLES / "openrlhf_existing_script.sh"], env={**os.environ, "PATH": path}, check=True)
    words = (tmp_path / "words").read_text().split("\0")[:-1]

    args = start(with_agent(words[2:]))

    assert args.train.agent_func_path == str(AGENT_FILE)
    assert args.reward.remote_url == ["agent"]
    assert args.critic.model_name_or_path is None
    plugins, run_file = PluginManager.discover(), EXAMPLES / "openrlhf_existing_script.yaml"
    check_arguments(args, Run(run_file, load_config(run_file, plugins=plugins), plugins))
