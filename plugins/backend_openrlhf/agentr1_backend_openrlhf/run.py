"""The run file inside an OpenRLHF launch: what is played, found again in every process that needs it.

Ray's workers share no objects with the process that started the launch, but all of them see the run file, whose path
is in the environment. ``load_run`` reads it and looks its names up among the plugins of OpenRLHF's own environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agentr1_backend_openrlhf import RUN_VARIABLE
from agentr1_core.config import RunConfig, load_config
from agentr1_core.engine import SamplingParams
from agentr1_core.episode import RolloutLimits
from agentr1_core.errors import ConfigError, DataError
from agentr1_core.flow import AgentFlowBase
from agentr1_core.job.build import (
    eval_sampling_params,
    find_recipe,
    find_tool_format,
    rollout_limits,
    sampling_params,
)
from agentr1_core.job.material import load_train_and_eval
from agentr1_core.job.offers import find
from agentr1_core.job.play import build_flow, build_reward, build_tools
from agentr1_core.plugins import PluginManager
from agentr1_core.render import ChatRenderer, create_chat_renderer
from agentr1_core.reward import RewardSum
from agentr1_core.task import Task
from agentr1_core.tool import ToolBox

#: Name of OpenRLHF's own engines under ``engine.name``.
OWN_ENGINE = "openrlhf"
#: Key of a label that names one of the run file's tasks: the split and the position.
TASK_KEY = "agentr1_task"


@dataclass(frozen=True)
class Run:
    """A run file and what it names. Everything is built at first use."""

    path: Path
    config: RunConfig
    plugins: PluginManager

    @property
    def folder(self) -> Path:
        """The backend's own folder beside the run file."""
        return self.path.parent / "openrlhf"

    @property
    def has_own_engines(self) -> bool:
        """Whether OpenRLHF's own engines sample, rather than an engine plugin in the collector."""
        return self.config.engine.name.rpartition(":")[2] == OWN_ENGINE

    @cached_property
    def tasks(self) -> dict[str, Sequence[Task]]:
        """The run file's tasks under ``train`` and ``eval``; none where the launch alone brings data."""
        if self.config.data.train is None and self.config.recipe is None:
            return {"train": (), "eval": ()}
        train, held_out = load_train_and_eval(self.config, find_recipe(self.config, self.plugins))
        return {"train": train, "eval": held_out}

    @cached_property
    def tools(self) -> ToolBox | None:
        """The run's tools, not opened."""
        return build_tools(self.config, self.plugins)

    def make_flow(self) -> AgentFlowBase:
        """A flow, not started."""
        everything = [task for split in self.tasks.values() for task in split]
        return build_flow(self.config, self.plugins, self.tools, everything)()

    def make_reward(self) -> RewardSum | None:
        """The rewards on finished trajectories."""
        return build_reward(self.config.reward, self.plugins)

    def make_renderer(self, tokenizer: Any) -> ChatRenderer:
        """The renderer of a tokenizer."""
        told = self.config.renderer
        return create_chat_renderer(
            tokenizer,
            name=told.name,
            tool_format=find_tool_format(self.config, self.plugins),
            template_kwargs=told.settings,
        )

    def make_estimator(self) -> Any:
        """The credit estimator."""
        told = self.config.algorithm.estimator
        return find(self.plugins, "estimator", told.name, "algorithm.estimator")(told.settings)

    @property
    def limits(self) -> RolloutLimits:
        """What an episode may use."""
        return rollout_limits(self.config)

    def sampling(self, training: bool) -> SamplingParams:
        """How the model is sampled, as the run file says."""
        return sampling_params(self.config) if training else eval_sampling_params(self.config)

    def task_of(self, prompt: Any, label: Any) -> Task:
        """The task of one row of OpenRLHF's data.

        A label that ``prompts`` wrote names a task of the run file. Any other JSON object holds the columns of a
        task; anything else is its ``ground_truth``. The prompt is the task's unless the label brings its own.

        Raises:
            DataError: The label names a task that the run file does not have.
        """
        columns = _as_mapping(label)
        if TASK_KEY in columns:
            split, position = columns[TASK_KEY]
            tasks = self.tasks.get(split, ())
            if not 0 <= position < len(tasks):
                raise DataError(
                    f"OpenRLHF's data name the {split} task {position}, but {self.path} gives {len(tasks)} of them here.",
                    "See that every machine of the launch reads the same data.",
                )
            return tasks[position]
        if not columns:
            columns = {"ground_truth": label}
        return Task({"prompt": prompt, **columns}, "a row of --data.prompt_dataset")


def load_run() -> Run:
    """The run of this launch.

    Raises:
        ConfigError: The environment names no run file, or it is wrong.
    """
    named = os.environ.get(RUN_VARIABLE)
    if not named:
        raise ConfigError(
            f"The environment variable {RUN_VARIABLE} is not set in an OpenRLHF worker.",
            f"Set it to the path of a run file for every process: `export {RUN_VARIABLE}=run.yaml` before the launch, "
            'or `"env_vars"` of `ray job submit --runtime-env-json`.',
        )
    plugins = PluginManager.discover()
    path = Path(named).resolve()
    return Run(path, load_config(path, plugins=plugins), plugins)


def task_label(split: str, position: int) -> str:
    """The label that names a task of the run file."""
    return json.dumps({TASK_KEY: [split, position]})


def _as_mapping(label: Any) -> dict[str, Any]:
    if isinstance(label, str) and label.lstrip().startswith("{"):
        try:
            label = json.loads(label)
        except json.JSONDecodeError:
            return {}
    return dict(label) if isinstance(label, dict) else {}
