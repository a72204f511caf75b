"""Run-file settings as TRL configurations: ``GRPOConfig`` for a run, ``SFTConfig`` for its warm start.

The backend calls it. What the job itself decides (group size, updates, seeds, folders) may not be set a second time;
an unknown field is an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

import torch
from trl import GRPOConfig, SFTConfig

from agentr1_backend_trl.tree_chunk import TreeSettings
from agentr1_core.backend import TrainingJob
from agentr1_core.errors import ConfigError

Config = TypeVar("Config", GRPOConfig, SFTConfig)

#: Settings of the backend itself, beside the fields of ``GRPOConfig``, and their types.
OWN_SETTINGS: Mapping[str, tuple[type, ...]] = {
    "rows_per_forward": (int,),
    "importance_cap": (int, float),
    "engine_weights": (str,),
    "lora": (Mapping,),
    "dtype": (str,),
    "threads": (int,),
    "loss": (str, Mapping),
    "critic": (Mapping,),
    "teacher": (str,),
    "tree_tokens": (int,),
    "tree_path": (str,),
}
_PLAIN = {bool, int, float, str, NoneType}
#: What the run file says elsewhere.
_ELSEWHERE = {
    "num_generations": "algorithm.group_size",
    "max_steps": "algorithm.updates",
    "num_train_epochs": "algorithm.updates",
    "generation_batch_size": "algorithm.prompts_per_update",
    "per_device_train_batch_size": "algorithm.prompts_per_update` or, for memory, `backend.rows_per_forward",
    "max_completion_length": "sampling.max_tokens",
    "temperature": "sampling.temperature",
    "top_p": "sampling.top_p",
    "top_k": "sampling.top_k",
    "min_p": "sampling.min_p",
    "seed": "run.seed",
    "output_dir": "run.dir",
    "save_steps": "run.save_every",
    "save_strategy": "run.save_every",
    "eval_strategy": "evaluation.every",
    "eval_steps": "evaluation.every",
    "use_vllm": "engine",
}


def grpo_config(job: TrainingJob, folder: Path, n_processes: int) -> GRPOConfig:
    """The configuration of a run: one generation batch is one optimiser step.

    Raises:
        ConfigError: A field is unknown, set elsewhere, or the episodes of an update do not divide evenly.
    """
    _check_own(job.settings)
    tree_settings(job)
    given = {name: value for name, value in job.settings.items() if name not in OWN_SETTINGS}
    for name, place in _ELSEWHERE.items():
        if name in given:
            raise ConfigError(f"`backend.{name}` is set elsewhere.", f"Set `{place}`.")
    accumulation = given.pop("gradient_accumulation_steps", 1)
    steps = given.pop("steps_per_generation", None)
    if steps not in (None, accumulation):
        raise ConfigError(
            "`backend.steps_per_generation` differs from `backend.gradient_accumulation_steps`.",
            "Remove it: a run plays one batch of episodes for each update.",
        )
    episodes = job.prompts_per_update * job.group_size
    if episodes % (n_processes * accumulation):
        raise ConfigError(
            f"{episodes} episodes of an update (prompts_per_update {job.prompts_per_update} x group_size "
            f"{job.group_size}) cannot be split evenly over {n_processes} processes and {accumulation} accumulation "
            "steps.",
            "Change `algorithm.prompts_per_update` or `algorithm.group_size`.",
        )
    if episodes < 2:
        raise ConfigError(
            "An update of one episode has nothing to compare it with.",
            "Raise `algorithm.group_size` or `algorithm.prompts_per_update`.",
        )
    derived = {
        "output_dir": str(folder),
        "per_device_train_batch_size": episodes // (n_processes * accumulation),
        "gradient_accumulation_steps": accumulation,
        # TRL refuses groups of one, which estimators over the whole batch allow; it is put right below.
        "num_generations": job.group_size if job.group_size > 1 else episodes,
        "max_completion_length": job.sampling.max_tokens,
        "temperature": job.sampling.temperature,
        "top_p": job.sampling.top_p,
        "top_k": job.sampling.top_k,
        "min_p": job.sampling.min_p or None,
        "max_steps": job.updates,
        "save_strategy": "steps" if job.save_every else "no",
        "save_steps": job.save_every or 500,
        "save_total_limit": 2,
        "seed": job.seed,
    }
    defaults = {
        **_device_defaults(),
        "logging_steps": 1,
        "report_to": "none",  # the backend adds TensorBoard in the run folder
        "disable_tqdm": True,
        "log_level": "error",
        "gradient_checkpointing": torch.cuda.is_available(),
    }
    config = _build(GRPOConfig, {**defaults, **given, **derived}, "backend")
    config.num_generations = job.group_size
    return config


def tree_settings(job: TrainingJob) -> TreeSettings:
    """How token trees are cut and run.

    Raises:
        ConfigError: A value is out of range, or trees are set up and not used.
    """
    given = {
        name: job.settings[key]
        for name, key in (("max_tokens", "tree_tokens"), ("path", "tree_path"))
        if job.settings.get(key) is not None
    }
    if given and job.merge != "tree":
        raise ConfigError(
            "`backend.tree_tokens` and `backend.tree_path` are about token trees, which this run does not use.",
            "Set `algorithm.merge: tree`, or remove them.",
        )
    return TreeSettings(**given)


def sft_config(settings: Mapping[str, Any], folder: Path, seed: int) -> SFTConfig:
    """The configuration of a warm start.

    Raises:
        ConfigError: A field is unknown or refused.
    """
    defaults = {
        **_device_defaults(),
        "output_dir": str(folder),
        "num_train_epochs": 1,
        "logging_steps": 50,
        "report_to": "none",
        "save_strategy": "no",
        "disable_tqdm": True,
        "log_level": "error",
        "gradient_checkpointing": torch.cuda.is_available(),
        "seed": seed,
        "completion_only_loss": True,
    }
    return _build(SFTConfig, {**defaults, **settings}, "warm_start")


def _check_own(settings: Mapping[str, Any]) -> None:
    for name, kinds in OWN_SETTINGS.items():
        value = settings.get(name)
        if value is None:
            continue
        wanted = " or ".join(kind.__name__ for kind in kinds)
        if not isinstance(value, kinds) or isinstance(value, bool):
            raise ConfigError(f"`backend.{name}` is {value!r}, but should be of type {wanted}.", "Mend its value.")
        if name in ("rows_per_forward", "threads") and value < 1:
            raise ConfigError(f"`backend.{name}` is {value}.", "Give at least 1.")


def _device_defaults() -> dict[str, Any]:
    return {
        "bf16": torch.cuda.is_available() and torch.cuda.is_bf16_supported(),
        "use_cpu": not torch.cuda.is_available(),
    }


def _build(kind: type[Config], values: Mapping[str, Any], key: str) -> Config:
    known = [field.name for field in fields(kind) if field.init]
    extra = tuple(OWN_SETTINGS) if key == "backend" else ()
    for name in values:
        if name not in known:
            near = difflib.get_close_matches(name, [*known, *extra], n=1)
            mend = f"Did you mean `{near[0]}`?" if near else f"See the fields of trl.{kind.__name__}."
            raise ConfigError(f"`{key}.{name}`: {kind.__name__} has no field '{name}'.", mend)
    _check_types(kind, values, key)
    try:
        return kind(**values)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"`{key}`: {kind.__name__} refuses its settings: {error}", f"Mend `{key}`.") from error


def _check_types(kind: type[Any], values: Mapping[str, Any], key: str) -> None:
    """Refuse a value of a wrong type where the field takes plain types only; YAML reads ``1e-3`` as a string."""
    hints = get_type_hints(kind)
    for name, value in values.items():
        allowed = get_args(hints[name]) or (hints[name],)
        if not set(allowed) <= _PLAIN:
            continue
        taken = {bool: {bool}, int: {int, float}, float: {float}, str: {str}, NoneType: {NoneType}}.get(type(value))
        if taken is None or not taken & set(allowed):
            wanted = " or ".join("nothing" if one is NoneType else one.__name__ for one in allowed)
            hint = " Write numbers with a dot, such as 1.0e-3." if isinstance(value, str) and float in allowed else ""
            raise ConfigError(f"`{key}.{name}` is {value!r}; {kind.__name__} wants {wanted}.", f"Mend its value.{hint}")
