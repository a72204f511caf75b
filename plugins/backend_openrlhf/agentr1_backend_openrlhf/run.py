"""The run file inside an OpenRLHF launch: what is played, found again in every process that needs it.

Ray's workers share no objects with the process that started the launch, but all of them see the run file, whose path
is in the environment. ``load_run`` reads it and looks its names up among the plugins of OpenRLHF's own environment.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from agentr1_backend_openrlhf import RUN_VARIABLE
from agentr1_backend_openrlhf.command.given import flat
from agentr1_core.config import RunConfig, load_config
from agentr1_core.engine import SamplingParams
from agentr1_core.episode import RolloutLimits
from agentr1_core.errors import ConfigError
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

    @property
    def n_own_engines(self) -> int:
        """OpenRLHF's own engines that share the run's episodes; 1 where the run file does not say how many."""
        said = {f"vllm.{name}": value for name, value in self.config.engine.settings.items()}
        return int({**dict(flat(self.config.backend.settings)), **said}.get("vllm.num_engines") or 1)

    @cached_property
    def tasks(self) -> Sequence[Task]:
        """The run file's tasks, held-out ones too; none where the launch alone brings data."""
        if self.config.data.train is None and self.config.recipe is None:
            return ()
        train, held_out = load_train_and_eval(self.config, find_recipe(self.config, self.plugins))
        return (*train, *held_out)

    @cached_property
    def tools(self) -> ToolBox | None:
        """The run's tools, not opened."""
        return build_tools(self.config, self.plugins)

    def make_flow(self) -> AgentFlowBase:
        """A flow, not started."""
        return build_flow(self.config, self.plugins, self.tools, self.tasks)()

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
