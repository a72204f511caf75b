"""What is refused before a run starts, because it could not be done exactly or not at all.

The trainer calls ``check_settings`` before TRL builds anything and ``check_engine`` once it knows the engine. A
setting that cannot be kept is an error that names it, never silently ignored.
"""

from __future__ import annotations

import logging
from typing import Any

from accelerate.utils import is_peft_model

from agentr1_backend_trl.weight_push import why_no_adapter
from agentr1_core.engine import InferenceEngine
from agentr1_core.errors import ConfigError, DataError

_log = logging.getLogger(__name__)


def check_settings(args: Any, merge: str, rows_per_forward: int | None = None, tree_path: str = "auto") -> None:
    """Refuse fields of ``GRPOConfig`` that step-level training cannot keep.

    Raises:
        ConfigError: Naming the field and the mend.
    """
    if merge not in ("none", "linear", "tree"):
        raise ConfigError(f"merge is '{merge}'.", "The TRL backend lays rows out with 'none', 'linear' or 'tree'.")
    if merge == "tree" and rows_per_forward is not None:
        raise ConfigError(
            f"rows_per_forward={rows_per_forward} bounds padded rows, and merge='tree' runs unique tokens.",
            "Remove it; for memory, bound the tokens of a forward with tree_tokens.",
        )
    if merge == "tree" and tree_path == "kv" and args.gradient_checkpointing:
        raise ConfigError(
            "tree_path='kv' does not work with gradient_checkpointing=True: recomputed layers lose the cache.",
            "Use tree_path='mask' or 'auto', or turn gradient checkpointing off.",
        )
    for field, broken, mend in (
        ("temperature", args.temperature <= 0, "Train with a temperature above 0; greedy actions carry no gradient."),
        ("repetition_penalty", args.repetition_penalty != 1.0, "Set it to 1.0: the trainer cannot score it."),
        ("generation_kwargs", bool(args.generation_kwargs), "Use temperature, top_p, top_k, min_p; remove the rest."),
        ("mask_truncated_completions", args.mask_truncated_completions, "Use an estimator with truncated='mask'."),
        ("top_entropy_quantile", args.top_entropy_quantile < 1.0, "Set it to 1.0: TRL takes it per forward."),
        ("use_adaptive_entropy", args.use_adaptive_entropy, "Use a fixed entropy_coef."),
        ("scale_rewards", args.scale_rewards == "batch", "Use 'group' or 'none', or estimator='reinforce_pp'."),
        (
            "use_transformers_continuous_batching",
            args.use_transformers_continuous_batching,
            "Remove it: the embedded engine batches continuously by itself.",
        ),
        (
            "max_tool_calling_iterations",
            args.max_tool_calling_iterations is not None,
            "Remove it, and pass limits=RolloutLimits(max_steps=...).",
        ),
        (
            "multi_objective_aggregation",
            args.multi_objective_aggregation != "sum_then_normalize",
            "Use 'sum_then_normalize'.",
        ),
    ):
        if broken:
            raise ConfigError(
                f"GRPOConfig.{field}={getattr(args, field)!r} does not work with step-level rollouts.", mend
            )
    if merge == "linear":
        for field, broken in (
            ("importance_sampling_level", args.importance_sampling_level != "token"),
            ("off_policy_mask_threshold", args.off_policy_mask_threshold is not None),
            ("loss_type", args.loss_type == "vespo"),
        ):
            if broken:
                raise ConfigError(
                    f"GRPOConfig.{field}={getattr(args, field)!r} looks at whole rows, and merge='linear' puts several "
                    "steps into one.",
                    "Set merge='none', so that a row is one step.",
                )


def check_extras(args: Any, estimator: Any, loss: Any, critic: Any, teacher: Any) -> None:
    """Refuse a loss, a critic or a teacher that would not do what it says.

    Raises:
        ConfigError: Naming what is set or missing, and the mend.
    """
    if critic is not None and not estimator.needs_values:
        raise ConfigError(
            f"A critic is set up, but estimator '{estimator.name}' reads no values.",
            "Use 'step_gae' or 'token_gae', or remove `critic`.",
        )
    if estimator.needs_teacher != (teacher is not None):
        raise ConfigError(
            f"Estimator '{estimator.name}' "
            + ("needs a teacher, and none is named." if teacher is None else "has no use for a teacher."),
            "Name one: `teacher`." if teacher is None else "Use 'distill', or remove `teacher`.",
        )
    if loss is None:
        return
    for field, idle, mend in (
        ("importance_sampling_level", args.importance_sampling_level != "token", "Use loss='gspo'."),
        ("off_policy_mask_threshold", args.off_policy_mask_threshold is not None, "Remove it."),
        ("delta", args.delta is not None, "Use the loss's dual_clip."),
    ):
        if idle:
            raise ConfigError(f"GRPOConfig.{field} belongs to TRL's losses, and `loss` replaces them.", mend)


def check_critic(args: Any, kind: str, merge: str, *, sharded: bool) -> None:
    """Refuse what would give the critic wrong gradients.

    Raises:
        ConfigError: Weights are sharded, gradients are scaled for fp16, or the policy's hidden states are not those of
            padded rows.
    """
    if kind == "shared" and merge not in ("none", "linear"):
        raise ConfigError(
            f"A critic that shares the policy's backbone reads padded rows, which merge='{merge}' does not run.",
            "Set merge='linear', or the critic's kind to 'separate'.",
        )
    if sharded:
        raise ConfigError(
            "A critic does not work under ZeRO-3 or FSDP: it is neither sharded nor can it read a sharded policy.",
            "Use DDP or ZeRO-2, or an estimator without values, such as 'grpo'.",
        )
    if args.fp16:
        raise ConfigError(
            "A critic does not work with fp16=True: its optimiser does not unscale gradients.", "Use bf16, or neither."
        )


def check_dataset(dataset: Any, n_prompts: int) -> None:
    """Refuse a data set that cannot fill one batch, from which TRL would silently train nothing.

    Raises:
        DataError: It is missing or has fewer rows than a batch has prompts.
    """
    if dataset is None:
        raise DataError("There is no train_dataset.", "Pass the rows to play; evaluation alone needs it too.")
    if hasattr(dataset, "__len__") and len(dataset) < n_prompts:
        raise DataError(
            f"The training data has {len(dataset)} rows, but one batch takes {n_prompts} prompts "
            "(generation_batch_size / num_generations).",
            "Add rows, or lower per_device_train_batch_size, steps_per_generation or the number of processes.",
        )


def sends_adapter(engine: InferenceEngine, model: Any, *, live: bool) -> bool:
    """Whether the adapter in training goes to the engine by itself.

    Raises:
        ConfigError: The engine was set up for adapters, and this model has none that can be sent.
    """
    if live or "lora" not in engine.capabilities.weight_sync:
        return False
    why_not = why_no_adapter(model) if is_peft_model(model) else "no adapter"
    if why_not is not None:
        raise ConfigError(
            f"Engine '{engine.name}' waits for LoRA adapters, and this run trains {why_not}.",
            "Set `engine.lora: merge`, or train a plain LoRA adapter (`backend.lora`).",
        )
    return True


def check_engine(
    engine: InferenceEngine,
    args: Any,
    *,
    live: bool,
    n_processes: int,
    sharded: str | None,
    route: str,
    cap: float | None,
) -> None:
    """Refuse an engine that cannot get the trainer's weights, and warn where log-probs are of another distribution.

    Args:
        engine: The engine that will sample.
        args: The ``GRPOConfig``.
        live: Whether it shares the trainer's model.
        n_processes: Training processes.
        sharded: ``"zero3"``, ``"fsdp"`` or ``None``.
        route: How weights reach an engine that is not live.
        cap: ``importance_cap``.

    Raises:
        ConfigError: The weights cannot reach it.
        PluginError: It lacks log-probs or the route.
    """
    engine.require(logprobs=True)
    if live and cap is not None:
        raise ConfigError(
            f"importance_cap={cap} has nothing to correct: the engine samples from the model in training itself.",
            "Remove it, or use an engine with weights of its own.",
        )
    if live and sharded == "fsdp" and n_processes > 1:
        raise ConfigError(
            "The embedded engine cannot sample from a model that FSDP shards over several processes: every forward "
            "would have to run on all of them in step.",
            "Use DDP or DeepSpeed, set use_vllm=True, or pass an engine of its own with engine_weights='file'.",
        )
    if live and sharded == "zero3" and not args.ds3_gather_for_generation:
        raise ConfigError(
            "ds3_gather_for_generation=False does not work with step-level rollouts: ranks sample at their own pace.",
            "Set ds3_gather_for_generation=True.",
        )
    if not live and not args.use_vllm:
        engine.require(weight_sync=route)
        if sharded is not None and route == "state_dict":
            raise ConfigError(
                f"engine_weights='state_dict' does not work under {sharded}: no process holds all weights.",
                "Set engine_weights='file'.",
            )
    if args.use_vllm and n_processes > 1 and args.vllm_mode == "server":
        raise ConfigError(
            "vllm_mode='server' with several training processes makes TRL generate on all of them in step, which "
            "episodes of different length cannot.",
            "Set vllm_mode='colocate', or pass an engine of its own, such as that of agentr1-engine-vllm.",
        )
    if args.use_vllm and args.vllm_tensor_parallel_size > 1:
        raise ConfigError(
            "vllm_tensor_parallel_size above 1 makes TRL generate on several processes in step, which episodes of "
            "different length cannot.",
            "Set it to 1, or pass an engine of its own, such as that of agentr1-engine-vllm.",
        )
    if args.top_p < 1.0 or args.top_k or args.min_p:
        _log.warning(
            "top_p, top_k or min_p leave out tokens, so the sampled distribution is not the one that is trained; "
            "the log-prob gap and the importance ratio include that difference."
        )
