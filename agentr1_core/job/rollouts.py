"""Build rollouts without training: the engine plugin loads the model itself.

``agentr1 rollout`` plays with what ``build_rollouts`` returns, and so may a notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr1_core.config.schema import RunConfig
from agentr1_core.episode import Policy
from agentr1_core.errors import ConfigError
from agentr1_core.job.build import (
    eval_sampling_params,
    find_recipe,
    find_tool_format,
    rollout_limits,
    sampling_params,
)
from agentr1_core.job.material import find_model, load_train_and_eval
from agentr1_core.job.offers import build_engine, check_settings, find
from agentr1_core.job.play import build_flow, build_reward, build_tools
from agentr1_core.rollout import Rollouts
from agentr1_core.task import Task

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """Rollouts ready to collect, and what they may play."""

    rollouts: Rollouts
    tasks: Sequence[Task]
    model: str
    #: The model's tokenizer, to show its tokens.
    tokenizer: Any


def build_rollouts(
    config: RunConfig, plugins: PluginManager, run_dir: Path, *, split: str = "eval", seed: int | None = None
) -> RolloutJob:
    """Rollouts of the run file's model on its tasks.

    Args:
        config: The run file.
        plugins: Where names are looked up.
        run_dir: Where a recipe's model is written.
        split: ``eval`` for the held-out tasks, sampled as in evaluation (the training tasks where there are none),
            or ``train``.
        seed: Seeds sampling; the run's own when left out.

    Raises:
        ConfigError, DataError, PluginError: As for ``build_job``.
    """
    from agentr1_core.render import create_chat_renderer

    engine = find(plugins, "engine", config.engine.name, "engine.name")
    settings = dict(config.engine.settings)
    check_settings(engine, settings, "engine")
    tools = build_tools(config, plugins)
    reward = build_reward(config.reward, plugins)
    recipe = find_recipe(config, plugins)
    train_tasks, eval_tasks = load_train_and_eval(config, recipe)
    tasks = eval_tasks if split == "eval" and eval_tasks else train_tasks
    flow = build_flow(config, plugins, tools, tasks)
    model = find_model(config, recipe, run_dir)
    tokenizer = load_tokenizer(model)
    renderer = create_chat_renderer(
        tokenizer,
        name=config.renderer.name,
        tool_format=find_tool_format(config, plugins),
        template_kwargs=config.renderer.settings,
    )
    sampling = eval_sampling_params(config) if split == "eval" else sampling_params(config)
    rollouts = Rollouts(
        flow(),
        Policy(build_engine(engine, settings, model=model, run_dir=run_dir), renderer, sampling),
        reward=reward,
        limits=rollout_limits(config),
        concurrency=config.rollout.concurrency,
        min_group_size=1,
        seed=config.run.seed if seed is None else seed,
        tools=tools,
        hooks=plugins.hook,
    )
    return RolloutJob(rollouts, tasks, model, tokenizer)


def load_tokenizer(model: str) -> Any:
    """The tokenizer of a folder or hub id, as ``renderers`` loads it.

    Raises:
        ConfigError: There is none, or it cannot be loaded.
    """
    from renderers.base import load_tokenizer as load

    try:
        return load(model)
    except Exception as error:  # transformers raises many kinds for a missing or broken tokenizer
        first = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(
            f"`model`: the tokenizer of '{model}' cannot be loaded: {type(error).__name__}: {first}",
            "Name a folder with a model and its tokenizer, or a hub id that can be reached.",
        ) from error
