"""A training job as ``agentr1 train`` would build it, and OpenRLHF's parser as far as its options say it."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agentr1_backend_openrlhf.command.options import Options
from agentr1_backend_openrlhf.own_engine import OpenRLHFEngine
from agentr1_core.backend import TrainingJob
from agentr1_core.credit import ESTIMATORS
from agentr1_core.engine import InferenceEngine, SamplingParams
from agentr1_core.episode import RolloutLimits
from agentr1_core.task import Task

MakeJob = Callable[..., TrainingJob]
Parse = Callable[[Options, Sequence[str]], dict[str, Any]]


@pytest.fixture(scope="session")
def make_job(tmp_path_factory: pytest.TempPathFactory) -> MakeJob:
    """``make_job({...}, engine={...}, estimator="grpo", field=...)``; the first are the settings of ``backend``."""

    folder = tmp_path_factory.mktemp("launch")

    def make(
        backend: dict[str, Any] | None = None,
        engine: dict[str, Any] | None = None,
        estimator: str = "grpo",
        engine_kind: type[InferenceEngine] = OpenRLHFEngine,
        **changed: Any,
    ) -> TrainingJob:
        job = TrainingJob(
            model="Qwen/Qwen3-0.6B",
            run_dir=folder / "run",
            train_tasks=[Task({"prompt": f"{n} + {n}?", "answer": str(2 * n)}, f"row {n}") for n in range(5)],
            eval_tasks=[],
            flow=lambda: pytest.fail("a launch plays nothing"),
            reward=None,
            tools=None,
            estimator=ESTIMATORS[estimator]({}),
            engine=(engine_kind, engine or {}),
            limits=RolloutLimits(max_context=512),
            sampling=SamplingParams(max_tokens=64),
            eval_sampling=SamplingParams(max_tokens=64, temperature=0.0),
            group_size=4,
            prompts_per_update=8,
            updates=3,
            concurrency=16,
            min_group_size=2,
            merge="linear",
            renderer=("auto", {}),
            settings=backend or {},
        )
        return replace(job, **changed)

    return make


@pytest.fixture(scope="session")
def parse() -> Parse:
    """``parse(options, arguments)``: what argparse makes of them, by destination."""
    parsers: dict[int, argparse.ArgumentParser] = {}

    def run(options: Options, arguments: Sequence[str]) -> dict[str, Any]:
        if id(options) not in parsers:
            parsers[id(options)] = _parser(options)
        return vars(parsers[id(options)].parse_args(arguments))

    return run


def _parser(options: Options) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False)
    types: dict[str, Any] = {"int": int, "float": float, "str": str}
    for option in options:
        if option.is_switch:
            action = "store_true" if option.kind == "on" else "store_false"
            parser.add_argument(option.flag, dest=option.dest, action=action, default=option.default)
        else:
            parser.add_argument(
                option.flag,
                type=types[option.kind],
                nargs=option.n_values,
                choices=option.choices or None,
                default=option.default,
            )
    return parser
