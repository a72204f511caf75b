"""A small world for the command line: a plugin with a backend that plays and learns nothing, an engine that
answers from a script, an environment, a recipe; a model folder with a real tokenizer; and a runner."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from agentr1_core.backend import BackendCapabilities, TrainingBackend, TrainingJob, TrainingResult
from agentr1_core.blocking import BlockingLoop
from agentr1_core.cli.main import main
from agentr1_core.env import AgentEnv
from agentr1_core.episode import Policy
from agentr1_core.metrics import describe_trajectories, success_rate
from agentr1_core.plugins import PluginManager, hookimpl
from agentr1_core.plugins.discovery import builtin_plugin
from agentr1_core.recipe import Recipe
from agentr1_core.render import create_chat_renderer
from agentr1_core.rollout import Rollouts
from agentr1_core.task import Task
from agentr1_core.testing.scripted_engine import ScriptedEngine
from agentr1_core.tool import tool


class Parrot(ScriptedEngine):
    """Calls the tool ``shout`` first and then says what it was asked; loads the tokenizer of the model's folder."""

    name = "parrot"

    class Settings(BaseModel):
        model_config = ConfigDict(extra="forbid", protected_namespaces=())
        model: str | None = None
        loudness: int = 1

    def __init__(self, settings: Settings) -> None:
        from transformers import AutoTokenizer

        super().__init__(AutoTokenizer.from_pretrained(settings.model), self.answer)

    @staticmethod
    def answer(prompt: str) -> str:
        if "shout" in prompt and "PARIS" not in prompt:
            return '<tool_call>\n{"name": "shout", "arguments": {"text": "paris"}}\n</tool_call>'
        return "It is Paris." if "France" in prompt else "I do not know."


class PlayBackend(TrainingBackend):
    """Collects and reports as a real backend does; the model stays as it is."""

    name = "play"

    class Settings(BaseModel):
        model_config = ConfigDict(extra="forbid")
        interrupt_at: int | None = None
        fail_at: int | None = None
        step_size: float = 0.1

    @property
    def capabilities(self) -> BackendCapabilities:
        return BackendCapabilities(merges=frozenset({"none", "linear"}), warm_start=True, resume=True)

    def train(self, job: TrainingJob) -> TrainingResult:
        engine = job.engine[0](job.engine[0].Settings(model=job.model, **job.engine[1]))
        renderer = create_chat_renderer(engine.tokenizer, name=job.renderer[0], tool_format=job.tool_format)
        rollouts = Rollouts(
            job.flow(), Policy(engine, renderer, job.sampling), reward=job.reward, limits=job.limits,
            concurrency=job.concurrency, min_group_size=job.min_group_size, tools=job.tools, hooks=job.hooks,
        )  # fmt: skip
        loop = BlockingLoop()
        ledger = {"sampled": 0, "trained": 0, "masked": 0, "dropped": 0}
        try:
            before = success_rate(loop.run(rollouts.collect(job.eval_tasks, training=False)).trajectories)
            for update in range(1, job.updates + 1):
                if update == job.settings.get("interrupt_at"):
                    os.kill(os.getpid(), signal.SIGINT)
                played = loop.run(rollouts.collect(job.train_tasks[: job.prompts_per_update], job.group_size))
                if update == job.settings.get("fail_at"):
                    raise ValueError("the trainer broke")
                n_tokens = sum(trajectory.n_sampled for trajectory in played.trajectories)
                ledger["sampled"] += n_tokens
                ledger["trained"] += n_tokens
                figures = {**describe_trajectories(played.trajectories), "loss": 0.0}
                figures |= {"ledger/sampled": n_tokens, "ledger/trained": n_tokens}
                job.hooks.agentr1_update(metrics=figures, step=update)
        finally:
            loop.run(rollouts.close())
            loop.close()
        checkpoint = job.run_dir / "checkpoint"
        engine.tokenizer.save_pretrained(checkpoint)
        return TrainingResult(before, before, job.updates, ledger, checkpoint)


class Riddle(AgentEnv):
    """One question, one answer, a reward of ``prize`` for Paris."""

    def __init__(self, prize: float = 1.0) -> None:
        self.prize = prize

    async def reset(self, task: Task) -> Any:
        return str(task["question"])

    async def step(self, action: Any) -> Any:
        return None, self.prize if "Paris" in action.text else 0.0, True, False, {}


@tool
def shout(text: str) -> str:
    """Say it in capitals."""
    return text.upper()


class Capitals(Recipe):
    """Asks for the capital of France; brings the model folder it is told of."""

    name = "capitals"
    model_source: Path

    def tasks(self, split: str, size: int, seed: int) -> Sequence[Task]:
        return [Task({"question": f"{split} {i}: capital of France?"}, f"capitals {split} {i}") for i in range(size)]

    def demonstrations(self, size: int, seed: int) -> Sequence[Mapping[str, Any]]:
        row = {"prompt": [{"role": "user", "content": "?"}], "completion": [{"role": "assistant", "content": "Paris"}]}
        return [row] * size

    def base_model(self, folder: Path, seed: int) -> Path:
        import shutil

        return Path(shutil.copytree(self.model_source, folder, dirs_exist_ok=True))

    @classmethod
    def run_files(cls) -> Mapping[str, Path]:
        return {"short": cls.model_source / "capitals.yaml", "long": cls.model_source / "long.yaml"}


CAPITALS_RUN = """\
run: {name: capitals}
recipe: capitals
model: recipe
env: riddle
data: {train_size: 4, eval_size: 2}
algorithm: {group_size: 2, prompts_per_update: 2, updates: 3}
engine: parrot
backend: play
warm_start: {demonstrations: 3}
"""


class Shop:
    """The plugin that offers all of this."""

    def __init__(self, recipe: type[Recipe]) -> None:
        self.recipe = recipe

    @hookimpl
    def agentr1_engines(self) -> Mapping[str, Any]:
        return {"parrot": Parrot}

    @hookimpl
    def agentr1_backends(self) -> Mapping[str, Any]:
        return {"play": PlayBackend}

    @hookimpl
    def agentr1_envs(self) -> Mapping[str, Any]:
        return {"riddle": Riddle}

    @hookimpl
    def agentr1_tools(self) -> Mapping[str, Any]:
        return {"shout": shout}

    @hookimpl
    def agentr1_recipes(self) -> Mapping[str, Any]:
        return {"capitals": self.recipe}


@dataclass(frozen=True)
class Said:
    """What a command said."""

    code: int
    out: str
    err: str


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tokenizer.save_pretrained(folder)
    (folder / "capitals.yaml").write_text(CAPITALS_RUN)
    (folder / "long.yaml").write_text(CAPITALS_RUN.replace("name: capitals}", "name: long}"))
    return folder


@pytest.fixture
def plugins(model_folder: Path) -> PluginManager:
    manager = PluginManager()
    manager.load((builtin_plugin(),))
    manager.register(Shop(type("Capitals", (Capitals,), {"model_source": model_folder})), "shop")
    return manager


@pytest.fixture
def agentr1(
    plugins: PluginManager, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> Callable[..., Said]:
    """``agentr1("train", "capitals")`` runs the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])  # the command adds this folder

    def command(*arguments: str) -> Said:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments], plugins)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return command


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    """A data set in the de-facto columns, as a tool agent plays it."""
    path = tmp_path / "questions.jsonl"
    rows = [
        {
            "data_source": "capitals",
            "prompt": [{"role": "user", "content": f"{i}: What is the capital of France?"}],
            "ability": "geography",
            "reward_model": {"style": "rule", "ground_truth": "Paris"},
            "extra_info": {"index": i},
        }
        for i in range(6)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def run_file(tmp_path: Path, questions: Path, model_folder: Path) -> Path:
    """A run file for these questions, with a tool and a reward."""
    path = tmp_path / "run.yaml"
    path.write_text(
        f"""\
run: {{name: questions}}
model: {model_folder}
data: {{train: questions.jsonl, eval_size: 2}}
tools: [shout]
reward: [contains_answer]
algorithm: {{group_size: 2, prompts_per_update: 2, updates: 2}}
engine: parrot
backend: play
"""
    )
    return path
