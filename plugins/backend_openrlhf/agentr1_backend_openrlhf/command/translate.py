"""From a training job to the options of OpenRLHF's command line.

``launch_options`` decides what the command line says; ``Options.write`` makes it text. Whatever of a job cannot be said
to OpenRLHF, or would mean something else there, is refused with the key of the run file. Nothing is started here.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentr1_backend_openrlhf import AGENT_FILE
from agentr1_backend_openrlhf.command.given import given_options
from agentr1_backend_openrlhf.command.options import Options, Value, known_options
from agentr1_backend_openrlhf.command.placement import place, trainer_ranks
from agentr1_backend_openrlhf.command.without_effect import refuse_without_effect
from agentr1_backend_openrlhf.own_engine import OpenRLHFEngine
from agentr1_backend_openrlhf.prompts import LABEL, PROMPT, PromptFiles
from agentr1_core.backend import TrainingJob
from agentr1_core.errors import ConfigError

#: Keys of ``backend`` that are no options of OpenRLHF, and what they take.
OWN_SETTINGS: Mapping[str, tuple[type, ...]] = {"python": (str,), "timeout_s": (int, float)}

#: Order of the sections on the command line.
_SECTIONS = (
    "actor",
    "critic",
    "ref",
    "reward",
    "vllm",
    "ds",
    "rollout",
    "train",
    "algo",
    "data",
    "eval",
    "ckpt",
    "logger",
)
_CORRECTION = ("level", "mode", "gating", "threshold")


def launch_arguments(job: TrainingJob) -> list[str]:
    """The arguments of ``openrlhf.cli.train_ppo_ray`` for a job, without the programme.

    Raises:
        ConfigError: Something of the run file cannot be said to OpenRLHF.
    """
    options = known_options()
    return options.write(launch_options(job, options))


def launch_options(job: TrainingJob, options: Options) -> dict[str, Value]:
    """Names and values of the options that a launch is given, by section.

    Args:
        job: The job; its prompt files need not be written yet.
        options: What OpenRLHF takes.

    Raises:
        ConfigError: A setting is unknown, refused, or would have no effect.
    """
    _check_own(job.settings)
    own_engines = issubclass(job.engine[0], OpenRLHFEngine)
    given = given_options(job.settings, job.engine[1] if own_engines else {}, options, OWN_SETTINGS)
    _check_job(job)
    critic = bool(getattr(job.estimator, "needs_values", False))
    coefficient = given.get("algo.kl.init_coef", 0.0)
    reference = isinstance(coefficient, (int, float)) and coefficient > 0
    chosen: dict[str, Value] = {
        **_models(job, critic),
        **_rollouts(job),
        **_data(job),
        **_results(job),
        **_algorithm(job, given, critic=critic, reference=reference),
    }
    chosen |= {**given, **place(given, reference=reference, critic=critic, own_engines=own_engines)}
    refuse_without_effect(given, chosen, options)
    if given.get("ds.lora.rank") and not own_engines:
        raise ConfigError(
            "`backend.ds.lora.rank` is above 0: OpenRLHF then saves adapters alone, which the engine cannot load.",
            "Train all weights, or set `engine: openrlhf`.",
        )
    _check_rows(job, chosen)
    _check_batches(job, chosen)
    return dict(sorted(chosen.items(), key=lambda each: _section(each[0])))


def _check_own(settings: Mapping[str, Any]) -> None:
    for name, kinds in OWN_SETTINGS.items():
        value = settings.get(name)
        if value is None:
            continue
        if not isinstance(value, kinds) or isinstance(value, bool):
            wanted = "text" if kinds == (str,) else "a number"
            raise ConfigError(f"`backend.{name}` is {value!r}; expected {wanted}.", "Mend its value.")
        if name == "timeout_s" and value <= 0:
            raise ConfigError(f"`backend.timeout_s` is {value}.", "Give a positive number of seconds.")


def _models(job: TrainingJob, critic: bool) -> dict[str, Value]:
    folder = Path(job.model)
    model = str(folder.resolve()) if folder.is_dir() else job.model  # workers have a working folder of their own
    return {"actor.model_name_or_path": model, **({"critic.model_name_or_path": model} if critic else {})}


def _rollouts(job: TrainingJob) -> dict[str, Value]:
    context = job.limits.max_context
    if context is None:
        raise ConfigError(
            "`rollout.max_context` is not set, and OpenRLHF's engines reserve memory for the longest context.",
            "Set `rollout.max_context` to the longest prompt plus action, in tokens.",
        )
    if job.sampling.max_tokens >= context:
        raise ConfigError(
            f"`sampling.max_tokens` is {job.sampling.max_tokens} and `rollout.max_context` {context}: no room is left "
            "for a prompt.",
            "Raise `rollout.max_context` or lower `sampling.max_tokens`.",
        )
    return {
        "rollout.batch_size": job.prompts_per_update,
        "rollout.n_samples_per_prompt": job.group_size,
        "rollout.max_new_tokens": job.sampling.max_tokens,
        "rollout.temperature": job.sampling.temperature,
        "rollout.top_p": job.sampling.top_p,
        "data.max_len": context,
        "train.agent_func_path": str(AGENT_FILE),
        "train.seed": job.seed,
        "train.num_episodes": 1,
        "train.batch_size": job.prompts_per_update * job.group_size,
    }


def _data(job: TrainingJob) -> dict[str, Value]:
    files = PromptFiles.of(job)
    said: dict[str, Value] = {
        "data.prompt_dataset": str(files.train.resolve()),
        "data.input_key": PROMPT,
        "data.label_key": LABEL,
    }
    if files.eval is None:
        return said
    return said | {
        "eval.dataset": str(files.eval.resolve()),
        "eval.steps": job.eval_every or max(job.updates, 1),
        "eval.temperature": job.eval_sampling.temperature,
        "eval.n_samples_per_prompt": 1,
    }


def _results(job: TrainingJob) -> dict[str, Value]:
    folder = job.run_dir.resolve()
    return {
        "ckpt.path": str(folder / "trainer"),
        "ckpt.output_dir": str(folder / "checkpoint"),
        "ckpt.save_steps": job.save_every or -1,
        "ckpt.load_enable": job.resume,
        # A checkpoint for each new best evaluation is for those who ask for it.
        "ckpt.best_metric_key": "none",
        "logger.tensorboard_dir": str(folder / "tensorboard"),
    }


def _algorithm(job: TrainingJob, given: Mapping[str, Value], *, critic: bool, reference: bool) -> dict[str, Value]:
    """The estimator is agentr1's; OpenRLHF only needs to know whether there is a critic."""
    said: dict[str, Value] = {
        "algo.advantage.estimator": "gae" if critic else "reinforce",
        "algo.kl.init_coef": 0.0,
        "actor.entropy_coef": 0.0,  # computes the entropy, to report it
    }
    if reference and given.get("algo.kl.use_loss", False):
        said["algo.kl.estimator"] = "k2"  # the gradient of k1 as a loss is zero on average
    correction = [f"algo.advantage.is_correction_{part}" for part in _CORRECTION]
    shaped = job.sampling.temperature != 1 or job.sampling.truncates_support
    if given.get(correction[0]) == "off" and shaped:
        raise ConfigError(
            f"`backend.{correction[0]}` is 'off': OpenRLHF's engines then report log-probs before temperature and "
            "truncation, which are not those of the distribution that `sampling` asks for.",
            "Remove it, or weigh every token with 1: `is_correction_level: token`, `is_correction_mode: clip`, "
            "`is_correction_threshold: [1.0, 1.0]`.",
        )
    if not any(name in given for name in correction):
        said |= {correction[0]: "token", correction[1]: "clip", correction[3]: [0.0, 2.0]}
    elif correction[0] not in given:
        said[correction[0]] = "token"
    return said


def _check_job(job: TrainingJob) -> None:
    if job.updates < 1:
        raise ConfigError(
            "`algorithm.updates` is 0, and OpenRLHF cannot run without an update.",
            "Raise it, or play the episodes with `agentr1 rollout`.",
        )
    if job.sampling.temperature == 0:
        raise ConfigError(
            "`sampling.temperature` is 0, and OpenRLHF's policy divides its logits by it.",
            "Set it above 0; `evaluation.sampling.temperature` may be 0.",
        )


def _check_rows(job: TrainingJob, chosen: Mapping[str, Value]) -> None:
    """Refuse losses that look at whole rows, where a row may hold several steps."""
    if chosen.get("actor.loss_agg_mode") == "seq-mean-token-mean":
        other = "algo.kl.use_loss" if chosen.get("algo.kl.use_loss") else "actor.entropy_coef"
        if chosen.get(other):
            raise ConfigError(
                "`backend.actor.loss_agg_mode: seq-mean-token-mean` is an average over trajectories here, folded into "
                f"the advantages, and `backend.{other}` has none.",
                f"Remove `backend.{other}`, or use `token-mean`.",
            )
    if job.merge == "none":
        return
    for name, value, what in (
        ("actor.policy_loss_type", "gspo", "one ratio for each row"),
        ("algo.advantage.is_correction_level", "seq", "one weight for each row"),
    ):
        if chosen.get(name) == value:
            raise ConfigError(
                f"`backend.{name}` is '{value}', which takes {what}: merging steps into rows would change the loss.",
                "Set `algorithm.merge: none`; it then means each step.",
            )


def _check_batches(job: TrainingJob, chosen: Mapping[str, Value]) -> None:
    ranks = trainer_ranks(chosen)
    micro = chosen.get("train.micro_batch_size", 1)
    batch = chosen["train.batch_size"]
    if not isinstance(micro, int) or not isinstance(batch, int) or micro < 1 or batch % (micro * ranks):
        raise ConfigError(
            f"A batch of {batch} (`backend.train.batch_size`; by default `algorithm.prompts_per_update` x "
            f"`algorithm.group_size`) cannot be split over {ranks} ranks in micro-batches of {micro} "
            "(`backend.train.micro_batch_size`).",
            f"Make it a multiple of {ranks} x {micro}.",
        )
    forward = chosen.get("rollout.micro_batch_size", 1)
    episodes = job.prompts_per_update * job.group_size
    if episodes % batch:
        raise ConfigError(
            f"`backend.train.batch_size` is {batch}, of which the {episodes} episodes of an update make no whole "
            "number of optimiser steps; the learning rate's schedule counts them.",
            f"Make it {episodes}, or a number that divides it.",
        )
    if not isinstance(forward, int) or forward < 1 or episodes // forward < ranks:
        raise ConfigError(
            f"{episodes} episodes of an update in forwards of {forward} (`backend.rollout.micro_batch_size`) leave "
            f"some of the {ranks} ranks without work, which OpenRLHF refuses.",
            "Lower `backend.rollout.micro_batch_size`, or raise `algorithm.prompts_per_update`.",
        )


def _section(name: str) -> int:
    section = name.partition(".")[0]
    return _SECTIONS.index(section) if section in _SECTIONS else len(_SECTIONS)
