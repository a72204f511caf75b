"""Options of OpenRLHF that a run file may not set under ``backend``: said elsewhere, or wrong for steps as rows.

``translate`` asks ``refuse`` about every key. The reasons are facts about OpenRLHF 0.11; an option that is not named
here is passed on as it is.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentr1_core.errors import ConfigError

#: What another key of the run file says.
ELSEWHERE: Mapping[str, str] = {
    "actor.model_name_or_path": "model",
    "train.agent_func_path": "env` or `flow",
    "train.seed": "run.seed",
    "train.num_episodes": "algorithm.updates",
    "rollout.batch_size": "algorithm.prompts_per_update",
    "rollout.vllm_generate_batch_size": "algorithm.prompts_per_update",
    "rollout.n_samples_per_prompt": "algorithm.group_size",
    "rollout.max_new_tokens": "sampling.max_tokens",
    "rollout.temperature": "sampling.temperature",
    "rollout.top_p": "sampling.top_p",
    "data.max_len": "rollout.max_context",
    "data.prompt_dataset": "data.train",
    "data.prompt_split": "data.train_split",
    "data.max_samples": "data.train_size",
    "eval.dataset": "data.eval",
    "eval.split": "data.eval_split",
    "eval.steps": "evaluation.every",
    "eval.temperature": "evaluation.sampling.temperature",
    "algo.advantage.estimator": "algorithm.estimator",
    "algo.advantage.gamma": "algorithm.estimator.gamma",
    "algo.advantage.lambd": "algorithm.estimator.lam",
    "algo.advantage.no_std_norm": "algorithm.estimator",
    "ckpt.path": "run.dir",
    "ckpt.output_dir": "run.dir",
    "ckpt.save_steps": "run.save_every",
    "ckpt.load_enable": "run.dir` and say `agentr1 train --resume",
    "reward.model_name_or_path": "reward",
    "reward.remote_url": "reward",
}

_REWARDS = "it reshapes one reward for each trajectory, and here every step has its own"
_MODEL = "it is about a reward model, and here the environment and `reward` say the rewards"
_RENDERED = "it renders prompts, which the environment and `renderer` do here"

#: What would be ignored, or change silently what is trained: the reason, and the mend.
REFUSED: Mapping[str, tuple[str, str]] = {
    "train.dynamic_batch_enable": (
        "it keeps `rollout.batch_size` x `rollout.n_samples_per_prompt` rows and drops the others unseen",
        "Remove it; for memory lower `backend.train.micro_batch_size`.",
    ),
    "train.max_tokens_per_gpu": ("it belongs to dynamic batches, which drop rows", "Remove it."),
    "rollout.max_tokens_per_gpu": ("it belongs to dynamic batches, which drop rows", "Remove it."),
    "train.async_enable": ("the step trainer is synchronous", "Remove it."),
    "train.async_queue_size": ("the step trainer is synchronous", "Remove it."),
    "train.partial_rollout_enable": (
        "actions would begin under one set of weights and end under another, and OpenRLHF does not say where",
        "Remove it.",
    ),
    "algo.dynamic_filtering_enable": (
        "it uses up more prompts than the updates have, so that the run would end before its last update",
        "Remove it: groups without a signal have advantages of zero.",
    ),
    "algo.dynamic_filtering_range": ("it belongs to dynamic filtering", "Remove it."),
    "reward.overlong_buffer_len": (_REWARDS, "Give a `reward` of your own that counts tokens."),
    "reward.overlong_penalty_factor": (_REWARDS, "Give a `reward` of your own that counts tokens."),
    "reward.stop_properly_penalty_coef": (_REWARDS, "Give a `reward` of your own that looks at the stop reason."),
    "reward.clip_range": (_REWARDS, "Bound the values of your `reward`."),
    "reward.normalize_enable": (_MODEL, "Remove it; estimators normalise, see `algorithm.estimator`."),
    "reward.offload": (_MODEL, "Remove it."),
    "data.apply_chat_template": (_RENDERED, "Remove it."),
    "data.input_template": (_RENDERED, "Remove it."),
    "data.input_key": ("the prompt file of a run has its own columns", "Remove it; see `data.train`."),
    "data.label_key": ("the prompt file of a run has its own columns", "Remove it; see `data.train`."),
    "data.prompt_probs": ("a run has one prompt file", "Mix the data set of `data.train` beforehand."),
    "data.image_key": ("observations are text", "Remove it."),
    "data.max_images_per_prompt": ("observations are text", "Remove it."),
    "actor.freeze_visual_encoder": ("observations are text", "Remove it."),
    "local_rank": ("Ray places the processes", "Remove it."),
}


def refuse(name: str, key: str) -> None:
    """Raise if this option may not stand under ``backend``.

    Args:
        name: The option.
        key: As it stands in the run file.

    Raises:
        ConfigError: With the reason and the mend.
    """
    if name in ELSEWHERE:
        raise ConfigError(f"`{key}` is set elsewhere.", f"Set `{ELSEWHERE[name]}`.")
    if name in REFUSED:
        reason, mend = REFUSED[name]
        raise ConfigError(f"`{key}`: OpenRLHF's --{name} cannot be used with steps as rows: {reason}.", mend)
