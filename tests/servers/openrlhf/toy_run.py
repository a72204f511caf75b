"""Jobs on the toy environment, built from a run file in the run's folder as ``agentr1 train`` builds them."""

from __future__ import annotations

import json
import random
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentr1_core.backend import TrainingJob
from agentr1_core.config.load import check_config
from agentr1_core.job import build_job
from agentr1_core.plugins import PluginManager
from agentr1_core.run_folder import RunFolder
from agentr1_recipes import tiny
from agentr1_recipes.quickstart.demonstrations import demonstrate
from agentr1_recipes.quickstart.tiny_model import write_tiny_model


@cache
def model_and_data() -> tuple[Path, Path]:
    """A tiny chat model that never saw anything, and tasks."""
    folder = Path(_folder().name)
    write_tiny_model(folder / "model", seed=0, hidden=64, layers=2)
    rows = [{"question": f"number {n}"} for n in range(12)]
    (folder / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder / "model", folder / "tasks.jsonl"


@cache
def model_of_words() -> Path:
    """The same, but for a tokenizer whose tokens span no words: a chat template then writes an answer back token for
    token, unless it begins or ends with white space or holds special tokens."""
    texts = tiny.as_texts(demonstrate(random.Random(n)) for n in range(200))
    folder = Path(_folder().name) / "model_of_words"
    return tiny.write_tiny_model(folder, texts, seed=0, hidden=64, layers=2, heads=2, phrases=False)


@cache
def _folder() -> TemporaryDirectory[str]:
    """Removed when the process ends."""
    return TemporaryDirectory(prefix="agentr1-openrlhf-")


def toy_config(**sections: Any) -> dict[str, Any]:
    """A run file of two updates; ``sections`` are laid over it, section by section."""
    model, data = model_and_data()
    config: dict[str, Any] = {
        "model": str(model),
        "env": {"name": "toy_env:EvenTokens"},
        "data": {"train": str(data), "eval_size": 4},
        "sampling": {"max_tokens": 4},
        "rollout": {"max_steps": 4, "max_context": 128},
        "algorithm": {
            "estimator": {"name": "step_grpo"},
            "group_size": 4,
            "prompts_per_update": 4,
            "updates": 2,
            "merge": "linear",
        },
        "engine": {"name": "transformers"},
        "backend": {
            "name": "openrlhf",
            "timeout_s": 1500,
            "ds": {"attn_implementation": "eager"},
            "train.micro_batch_size": 4,
            "rollout.micro_batch_size": 4,
            "actor": {"adam.lr": 3e-3, "lr_scheduler": "constant", "lr_warmup_ratio": 0.0},
        },
    }
    for name, section in sections.items():
        config[name] = {**config[name], **section} if isinstance(section, dict) and name in config else section
    return config


def toy_job(run_dir: Path, **sections: Any) -> TrainingJob:
    """A job whose run file lies in ``run_dir``."""
    config = check_config(toy_config(**sections))
    RunFolder.create(config, path=run_dir, overwrite=True)
    return build_job(config, PluginManager.discover(), run_dir)


class Observer:
    """Keeps what a run reports."""

    def __init__(self) -> None:
        self.updates: list[dict[str, float]] = []
        self.ids: list[str] = []

    def agentr1_update(self, *, metrics: dict[str, float], step: int) -> None:
        self.updates.append(metrics)

    def agentr1_trajectory(self, *, trajectory: Any) -> None:
        self.ids.append(trajectory.id)

    def agentr1_step(self, **_: Any) -> None:
        """Not looked at."""

    def agentr1_group(self, **_: Any) -> None:
        """Not looked at."""
