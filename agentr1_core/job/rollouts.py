"""Build rollouts without training: the engine plugin loads the model itself.

``agentr1 rollout`` plays with what ``build_rollouts`` returns, and so may a notebook.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr1_core.config.schema import RunConfig
from agentr1_core.engine import SamplingParams
from agentr1_core.episode import ChatPolicy, Policy
from agentr1_core.errors import ConfigError
from agentr1_core.job.build import (
    eval_sampling_params,
    find_recipe,
    find_tool_format,
    rollout_limits,
    sampling_params,
)
from agentr1_core.job.material import find_model, load_train_and_eval
from agentr1_core.job.offers import build_engine, check_settings, find, is_chat_engine
from agentr1_core.job.play import build_flow, build_reward, build_tools
from agentr1_core.recipe import Recipe
from agentr1_core.rollout import Rollouts
from agentr1_core.task import Task

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


@dataclass(frozen=True, slots=True)
class RolloutJob:
    """Rollouts ready to collect, and what they may play."""

    rollouts: Rollouts
    tasks: Sequence[Task]
    #: Folder, hub id, or its name at the service that answers.
    model: str
    #: The model's tokenizer, to show its tokens; ``None`` for an engine that answers in text.
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
    check_settings(find(plugins, "engine", config.engine.name, "engine.name"), config.engine.settings, "engine")
    recipe = find_recipe(config, plugins)
    train_tasks, eval_tasks = load_train_and_eval(config, recipe)
    tasks = eval_tasks if split == "eval" and eval_tasks else train_tasks
    sampling = eval_sampling_params(config) if split == "eval" else sampling_params(config)
    return build_player(config, plugins, run_dir, tasks, sampling, recipe=recipe, seed=seed)


def build_player(
    config: RunConfig,
    plugins: PluginManager,
    run_dir: Path,
    tasks: Sequence[Task],
    sampling: SamplingParams,
    *,
    recipe: Recipe | None = None,
    seed: int | None = None,
    resume: bool = False,
) -> RolloutJob:
    """Rollouts of the run file's model on given tasks.

    Args:
        config: The run file.
        plugins: Where names are looked up.
        run_dir: Where a recipe's model is written.
        tasks: What is to be played; what each names is looked up now.
        sampling: How the model is sampled.
        recipe: The run's recipe, for its model.
        seed: Seeds sampling; the run's own when left out.
        resume: Take the recipe's model that lies in ``run_dir`` already.

    Raises:
        ConfigError, DataError, PluginError: As for ``build_job``.
    """
    engine = find(plugins, "engine", config.engine.name, "engine.name")
    check_settings(engine, config.engine.settings, "engine")
    tools = build_tools(config, plugins)
    reward = build_reward(config.reward, plugins)
    flow = build_flow(config, plugins, tools, tasks)
    tokenizer: Any = None
    policy: Policy | ChatPolicy
    if is_chat_engine(engine):
        policy = _chat_policy(engine, config, sampling)
        model = str(config.engine.settings.get("model", config.engine.name))
    else:
        model = find_model(config, recipe, run_dir, resume=resume)
        tokenizer = load_tokenizer(model)
        policy = _policy(engine, config, plugins, sampling, model, tokenizer, run_dir)
    rollouts = Rollouts(
        flow(),
        policy,
        reward=reward,
        limits=rollout_limits(config),
        concurrency=config.rollout.concurrency,
        min_group_size=1,
        seed=config.run.seed if seed is None else seed,
        tools=tools,
        hooks=plugins.hook,
    )
    return RolloutJob(rollouts, tasks, model, tokenizer)


def _policy(
    engine: Any,
    config: RunConfig,
    plugins: PluginManager,
    sampling: SamplingParams,
    model: str,
    tokenizer: Any,
    run_dir: Path,
) -> Policy:
    from agentr1_core.render import create_chat_renderer

    renderer = create_chat_renderer(
        tokenizer,
        name=config.renderer.name,
        tool_format=find_tool_format(config, plugins),
        template_kwargs=config.renderer.settings,
    )
    return Policy(build_engine(engine, config.engine.settings, model=model, run_dir=run_dir), renderer, sampling)


def _chat_policy(engine: Any, config: RunConfig, sampling: SamplingParams) -> ChatPolicy:
    """The service renders and counts by itself: no tokenizer, and no limit in tokens of the prompt."""
    if sampling.stop_token_ids:
        raise ConfigError(
            f"`sampling.stop_token_ids`: the engine '{config.engine.name}' answers in text and knows no token ids.",
            "Leave them out; such engines have a setting for texts that end an answer, such as `engine.stop`.",
        )
    schema = getattr(engine, "Settings", None)
    given = config.engine.settings
    return ChatPolicy(engine(**given) if schema is None else engine(schema(**given)), sampling)


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
