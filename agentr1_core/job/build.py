"""Build the training job of a run from its configuration.

``agentr1 train`` calls ``build_job`` and hands the result to the backend. Everything a run file names is looked up
and checked here, before a model is loaded.
"""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr1_core.backend import TrainingJob
from agentr1_core.config.schema import RunConfig
from agentr1_core.credit import ESTIMATORS
from agentr1_core.engine import SamplingParams
from agentr1_core.episode import RolloutLimits
from agentr1_core.job.material import find_model, find_warm_start, load_train_and_eval
from agentr1_core.job.offers import build, check_settings, find
from agentr1_core.job.play import build_flow, build_reward, build_tools
from agentr1_core.recipe import Recipe

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


def build_job(config: RunConfig, plugins: PluginManager, run_dir: Path, *, resume: bool = False) -> TrainingJob:
    """Everything the backend needs.

    Args:
        config: The run file.
        plugins: Where names are looked up; its hooks are told of the run's progress.
        run_dir: The run's folder; a recipe's model is written there.
        resume: Go on from the checkpoint in ``run_dir``.

    Raises:
        ConfigError: A setting is wrong or missing.
        DataError: The data set is missing, malformed or empty.
        PluginError: A name is not on offer or cannot be imported.
    """
    engine = find(plugins, "engine", config.engine.name, "engine.name")
    check_settings(engine, config.engine.settings, "engine")
    backend = find(plugins, "backend", config.backend.name, "backend.name")
    check_settings(backend, config.backend.settings, "backend")
    estimator = find(plugins, "estimator", config.algorithm.estimator.name, "algorithm.estimator")
    tools = build_tools(config, plugins)
    reward = build_reward(config.reward, plugins)
    recipe = find_recipe(config, plugins)
    train_tasks, eval_tasks = load_train_and_eval(config, recipe)
    flow = build_flow(config, plugins, tools, [*train_tasks, *eval_tasks])
    sampling = sampling_params(config)
    algorithm = config.algorithm
    return TrainingJob(
        model=find_model(config, recipe, run_dir, resume=resume),
        run_dir=run_dir,
        train_tasks=train_tasks,
        eval_tasks=eval_tasks,
        flow=flow,
        reward=reward,
        tools=tools,
        estimator=estimator(algorithm.estimator.settings),
        engine=(engine, config.engine.settings),
        limits=rollout_limits(config),
        sampling=sampling,
        eval_sampling=eval_sampling_params(config),
        group_size=algorithm.group_size,
        prompts_per_update=algorithm.prompts_per_update,
        updates=algorithm.updates,
        concurrency=config.rollout.concurrency,
        min_group_size=config.rollout.min_group_size,
        merge=algorithm.merge,
        renderer=(config.renderer.name, config.renderer.settings),
        tool_format=find_tool_format(config, plugins),
        settings=config.backend.settings,
        warm_start=find_warm_start(config, recipe),
        shuffle_advantages=algorithm.shuffle_advantages,
        eval_every=config.evaluation.every,
        save_every=config.run.save_every,
        resume=resume,
        seed=config.run.seed,
        hooks=plugins.hook,
    )


def cautions(config: RunConfig) -> list[str]:
    """What a run file allows but its writer should know before the run starts."""
    said = []
    known = ESTIMATORS.get(config.algorithm.estimator.name)
    if config.algorithm.group_size == 1 and known is not None and known.compares_group:
        said.append(
            f"algorithm.group_size is 1: '{config.algorithm.estimator.name}' compares the trajectories of a group, so "
            "every advantage is 0 and nothing is learned. Raise it, or use an estimator without groups, such as "
            "`reinforce_pp`."
        )
    if config.algorithm.shuffle_advantages:
        said.append("algorithm.shuffle_advantages is on: this is the negative control, which must not learn.")
    return said


def find_recipe(config: RunConfig, plugins: PluginManager) -> Recipe | None:
    """An instance of the recipe that the run file names."""
    if config.recipe is None:
        return None
    recipe: Recipe = build(find(plugins, "recipe", config.recipe.name, "recipe.name"), config.recipe.settings, "recipe")
    return recipe


def find_tool_format(config: RunConfig, plugins: PluginManager) -> Any:
    """An instance of the tool format that the run file names; ``None`` for the default."""
    name = config.renderer.tool_format
    return None if name is None else find(plugins, "tool_format", name, "renderer.tool_format")()


def rollout_limits(config: RunConfig) -> RolloutLimits:
    """The limits of an episode."""
    named = {each.name for each in fields(RolloutLimits)}
    return RolloutLimits(**{key: value for key, value in config.rollout.model_dump().items() if key in named})


def sampling_params(config: RunConfig) -> SamplingParams:
    """How the model is sampled in training."""
    values = config.sampling.model_dump()
    return SamplingParams(**{**values, "stop_token_ids": tuple(values["stop_token_ids"])})


def eval_sampling_params(config: RunConfig) -> SamplingParams:
    """How the model is sampled in evaluation: as in training but for what ``evaluation.sampling`` sets."""
    changed = config.evaluation.sampling.model_dump(exclude_none=True)
    if "stop_token_ids" in changed:
        changed["stop_token_ids"] = tuple(changed["stop_token_ids"])
    return replace(sampling_params(config), **changed)
