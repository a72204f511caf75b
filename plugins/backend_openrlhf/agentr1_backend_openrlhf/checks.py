"""What OpenRLHF's arguments may not say in a launch with the step trainer, and what they are made to say.

``check_arguments`` runs before anything is started. A setting that cannot be kept is refused with the reason, never
ignored.
"""

from __future__ import annotations

from typing import Any

from agentr1_backend_openrlhf.run import Run
from agentr1_core.errors import ConfigError

#: OpenRLHF's estimator for runs with a critic, and for runs without: agentr1's takes its place, and these only decide
#: whether OpenRLHF starts a critic.
WITH_CRITIC, WITHOUT_CRITIC = "gae", "reinforce"


def check_arguments(args: Any, run: Run) -> None:
    """Check OpenRLHF's parsed arguments against the run file, and complete them.

    Raises:
        ConfigError: They cannot be kept, or contradict the run file.
    """
    _refuse_unkept(args)
    _match_run(args, run)
    if args.actor.entropy_coef is None:
        args.actor.entropy_coef = 0.0  # reported, not trained on
    args.agentr1_weights = _weights(args, run)


def _refuse_unkept(args: Any) -> None:
    refused = (
        ("--train.async_enable", args.train.async_enable, "the step trainer is synchronous", "Remove the flag."),
        (
            "--train.dynamic_batch_enable",
            args.train.dynamic_batch_enable,
            "OpenRLHF then drops rows beyond the number of samples, and rewritten contexts make more",
            "Set `--train.micro_batch_size` and `--rollout.micro_batch_size` instead.",
        ),
        (
            "--reward.clip_range",
            tuple(args.reward.clip_range) != (-10, 10),
            "rewards belong to steps here and are not clipped",
            "Bound them in the environment or the reward function.",
        ),
        (
            "--reward.overlong_buffer_len",
            args.reward.overlong_buffer_len is not None,
            "length penalties are the environment's",
            "Give the penalty as a reward function.",
        ),
        (
            "--reward.stop_properly_penalty_coef",
            args.reward.stop_properly_penalty_coef is not None,
            "length penalties are the environment's",
            "Give the penalty as a reward function, or set `algorithm.estimator.truncated`.",
        ),
        (
            "--reward.normalize_enable",
            args.reward.normalize_enable,
            "it is about a reward model, and would shift the critic's values",
            "Remove the flag: estimators normalise.",
        ),
        (
            "--algo.advantage.gamma",
            args.algo.advantage.gamma != 1,
            "the run file's estimator takes its place",
            "Set `algorithm.estimator.gamma` of the run file.",
        ),
        (
            "--algo.advantage.lambd",
            args.algo.advantage.lambd != 1,
            "the run file's estimator takes its place",
            "Set `algorithm.estimator.lam` of the run file.",
        ),
        (
            "--algo.advantage.no_std_norm",
            args.algo.advantage.no_std_norm,
            "the run file's estimator takes its place",
            "Choose an estimator, or its settings, in the run file.",
        ),
        (
            "--data.input_template",
            args.data.input_template is not None,
            "agentr1 renders the messages itself",
            "Remove the flag.",
        ),
        (
            "--data.max_images_per_prompt",
            args.data.max_images_per_prompt > 0,
            "prompts with images are not supported",
            "Remove the flag.",
        ),
        (
            "--data.apply_chat_template",
            args.data.apply_chat_template,
            "agentr1 renders the messages itself",
            "Remove the flag.",
        ),
    )
    for flag, is_set, why, mend in refused:
        if is_set:
            raise ConfigError(f"OpenRLHF's `{flag}` cannot be kept with the step trainer: {why}.", mend)


def _match_run(args: Any, run: Run) -> None:
    sampling = run.sampling(True)
    for flag, given, told in (
        ("rollout.temperature", args.rollout.temperature, sampling.temperature),
        ("rollout.top_p", args.rollout.top_p, sampling.top_p),
    ):
        if given != told:
            name = flag.partition(".")[2]
            raise ConfigError(
                f"OpenRLHF's `--{flag}` is {given}, but `sampling.{name}` of {run.path} is {told}.",
                "Give both the same value: the trainer reckons with the distribution that is sampled from.",
            )
    needs_values = run.make_estimator().needs_values
    if needs_values != (args.critic.model_name_or_path is not None):
        raise ConfigError(
            f"`algorithm.estimator` of {run.path} {'needs a critic' if needs_values else 'takes no critic'}, but "
            f"OpenRLHF {'has none' if needs_values else 'would start one'} with `--algo.advantage.estimator "
            f"{args.algo.advantage.estimator}`.",
            f"Set `--algo.advantage.estimator {WITH_CRITIC if needs_values else WITHOUT_CRITIC}`.",
        )
    has_engines = bool(args.vllm.num_engines)
    if has_engines != run.has_own_engines:
        raise ConfigError(
            f"`engine.name` of {run.path} is '{run.config.engine.name}', but OpenRLHF "
            f"{'would start' if has_engines else 'starts no'} engines of its own.",
            "Set `--vllm.num_engines` to 0, or `engine.name` to 'openrlhf'." if has_engines
            else "Set `--vllm.num_engines`, or `engine.name` to another engine.",
        )  # fmt: skip
    shaped = sampling.temperature != 1 or sampling.truncates_support
    if has_engines and shaped and args.algo.advantage.is_correction_level == "off":
        raise ConfigError(
            "OpenRLHF's engines then report log-probs before temperature and truncation, which are not those of the "
            f"distribution that {run.path} samples from.",
            "Set `--algo.advantage.is_correction_level token`, or sample with temperature 1 and the whole support.",
        )
    if not has_engines and args.ds.lora.rank > 0:
        raise ConfigError(
            "With `--ds.lora.rank` OpenRLHF saves adapters alone, which the engine cannot load.",
            "Train all weights, or use `engine: openrlhf`.",
        )
    if not has_engines and args.algo.dynamic_filtering_enable:
        raise ConfigError(
            "`--algo.dynamic_filtering_enable` draws further prompts while others are played, which only OpenRLHF's "
            "own engines do.",
            "Remove the flag, or use `engine: openrlhf`.",
        )


def _weights(args: Any, run: Run) -> str:
    """How token losses are averaged; folded into the advantages, so OpenRLHF is left with a mean over tokens."""
    if args.actor.policy_loss_type == "gspo" and run.config.algorithm.merge != "none":
        raise ConfigError(
            "OpenRLHF's `--actor.policy_loss_type gspo` takes one ratio for a whole row, and `algorithm.merge: "
            f"{run.config.algorithm.merge}` puts several steps into one.",
            "Set `algorithm.merge: none`, so that a row is a step.",
        )
    if args.actor.loss_agg_mode == "token-mean" or args.actor.policy_loss_type == "gspo":
        return "token-mean"
    if args.algo.kl.use_loss or args.actor.entropy_coef:
        raise ConfigError(
            "OpenRLHF's `--actor.loss_agg_mode seq-mean-token-mean` means trajectories here, and is folded into the "
            "advantages, which a KL loss or an entropy bonus do not have.",
            "Use `token-mean`, or put the KL divergence into the reward (no `--algo.kl.use_loss`).",
        )
    args.actor.loss_agg_mode = "token-mean"
    return "traj-mean-token-mean"
