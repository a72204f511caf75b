"""Step-level environments for those who keep ``trl.GRPOTrainer`` and its ``rollout_func``.

TRL takes exactly one row for each prompt from such a function, so that it fits contexts that only grow: the whole
episode is one row, and the environment's tokens are masked. Contexts that are rewritten need ``StepGRPOTrainer``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from agentr1_backend_trl.episodes import Player, as_renderer, make_playable, sampling_from_args
from agentr1_core.engine import InferenceEngine, WeightSource
from agentr1_core.episode import RolloutLimits
from agentr1_core.errors import EnvError
from agentr1_core.mdp import Trajectory
from agentr1_core.reward import RewardSum
from agentr1_core.rollout import Play
from agentr1_core.task import Task


def step_rollout_func(
    *,
    env: Any = None,
    flow: Any = None,
    tools: Any = None,
    limits: RolloutLimits | None = None,
    reward: RewardSum | None = None,
    renderer: Any = "auto",
    engine: InferenceEngine | None = None,
    concurrency: int = 256,
) -> Callable[[list[Any], Any], dict[str, Any]]:
    """A ``rollout_func`` that plays episodes with the model in training.

    Its result has ``prompt_ids``, ``completion_ids``, ``logprobs``, ``env_mask`` (1 for sampled tokens), and
    ``env_reward``, the return of each episode, which ``env_reward`` of this module turns into a TRL reward.

    Args:
        env, flow, tools, limits, reward, renderer, concurrency: As for ``StepGRPOTrainer``; tasks have only a prompt.
        engine: Samples the actions; it must share the trainer's model. By default one that does.

    Raises:
        EnvError: An episode failed, or the environment rewrote its context.
    """
    playable = make_playable(env=env, flow=flow, tools=tools, context=None)
    players: dict[int, Player] = {}
    calls = 0

    def player_of(trainer: Any) -> Player:
        if id(trainer) not in players:
            from agentr1_engine_transformers.engine import TransformersEngine

            model = trainer.accelerator.unwrap_model(trainer.model)
            own = engine or TransformersEngine.sharing(model, eos_token_ids=trainer.eos_token_ids)
            own.require(logprobs=True, weight_sync="live")
            sampling = sampling_from_args(trainer.args)
            players[id(trainer)] = Player(
                playable,
                own,
                as_renderer(renderer, trainer._tokenizer, dict(trainer.chat_template_kwargs)),
                sampling,
                sampling,
                reward=reward,
                limits=limits or RolloutLimits(),
                concurrency=concurrency,
                seed=trainer.args.seed,
                hooks=None,
            )
            trainer.add_callback(_CloseAtEnd(players[id(trainer)]))
        return players[id(trainer)]

    def rollout(prompts: list[Any], trainer: Any) -> dict[str, Any]:
        nonlocal calls
        calls += 1
        player = player_of(trainer)
        player.take_weights(WeightSource("live"), trainer.state.global_step)
        first = trainer.accelerator.process_index * len(prompts)
        plays = [
            Play(Task({"prompt": prompt}, where=f"prompt {i}"), f"{calls}", first + i)
            for i, prompt in enumerate(prompts)
        ]
        found = player.play(plays, training=trainer.model.training)
        for failed in found.failed:
            raise EnvError(
                f"An episode failed: {failed.error or failed.stop_reason.value}",
                "TRL wants a row for each prompt; StepGRPOTrainer leaves failed episodes out.",
            )
        by_id = {trajectory.id: trajectory for trajectory in found.trajectories}
        episodes = [by_id[f"{play.group_id}/{play.member}"] for play in plays]
        rows = [as_one_row(episode) for episode in episodes]
        return {name: [row[name] for row in rows] for name in rows[0]} if rows else {}

    return rollout


class _CloseAtEnd(TrainerCallback):  # type: ignore[misc]  # transformers types it as Any here
    """Closes engine, flow and tools when training ends; a later episode opens them again."""

    def __init__(self, player: Player) -> None:
        self._player = player

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._player.close()


def env_reward(env_reward: list[float], **_: Any) -> list[float]:
    """The return of each episode as a TRL reward function."""
    return list(env_reward)


def as_one_row(episode: Trajectory) -> dict[str, Any]:
    """The whole episode as one sequence.

    Raises:
        EnvError: A step's prompt does not start with the tokens of the step before it.
    """
    prompt = episode.steps[0].prompt_ids.tolist()
    completion: list[int] = []
    logprobs: list[float] = []
    mask: list[int] = []
    for step in episode.steps:
        so_far = [*prompt, *completion]
        shown = step.prompt_ids.tolist()
        if shown[: len(so_far)] != so_far:
            raise EnvError(
                f"Step {step.index} of '{episode.id}' rewrites the context, which one row cannot hold.",
                "Use StepGRPOTrainer, or an environment that only appends.",
            )
        added = shown[len(so_far) :]
        completion += [*added, *step.action.token_ids.tolist()]
        logprobs += [0.0] * len(added) + step.action.logprobs.tolist()
        mask += [0] * len(added) + [1] * len(step.action)
    return {
        "prompt_ids": prompt,
        "completion_ids": completion,
        "logprobs": logprobs,
        "env_mask": mask,
        "env_reward": episode.ret,
    }
