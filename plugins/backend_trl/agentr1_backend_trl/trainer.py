"""``StepGRPOTrainer``: TRL's GRPO trainer with rollouts by agentr1 and one transition per agent turn.

Scripts use it in place of ``trl.GRPOTrainer``. Configuration, data loading, reward functions, PEFT, accelerate,
checkpoints, callbacks and logging stay TRL's; what is played, what becomes a row, and how token losses are averaged
is decided here. It never rebuilds tokens from text.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from accelerate.utils import DistributedType, gather_object, is_peft_model
from transformers import PreTrainedTokenizerBase, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.models.utils import disable_gradient_checkpointing, unwrap_model_for_generation
from trl.trainer.utils import get_config_model_id

from agentr1_backend_trl.critic import Critic, CriticSettings
from agentr1_backend_trl.episodes import Player, as_renderer, make_playable, sampling_from_args
from agentr1_backend_trl.global_credit import as_estimator
from agentr1_backend_trl.importance import ImportanceCorrection
from agentr1_backend_trl.loss_plan import plan_loss
from agentr1_backend_trl.policy_loss import PolicyLoss, loss_scale, own_loss
from agentr1_backend_trl.reference import reference_logps
from agentr1_backend_trl.reporting import UpdateReporting
from agentr1_backend_trl.reward_functions import refuse_non_numbers
from agentr1_backend_trl.rows_to_tensors import Chunk
from agentr1_backend_trl.scoring import add_teacher, add_values
from agentr1_backend_trl.startup import (
    check_critic,
    check_dataset,
    check_engine,
    check_extras,
    check_settings,
    sends_adapter,
)
from agentr1_backend_trl.step_batch import check_some_usable, lay_out_batch, play_batch
from agentr1_backend_trl.step_loss import step_loss
from agentr1_backend_trl.teacher import Teacher
from agentr1_backend_trl.tree_chunk import TreeSettings
from agentr1_backend_trl.tree_forward import tree_logps
from agentr1_backend_trl.tree_models import check_tree_model
from agentr1_backend_trl.weight_push import push_weights
from agentr1_backend_trl.windows import plan_schedule
from agentr1_core.credit import CreditBatch
from agentr1_core.engine import InferenceEngine, SamplingParams
from agentr1_core.episode import RolloutLimits
from agentr1_core.errors import ConfigError
from agentr1_core.mdp import Group
from agentr1_core.metrics import is_success
from agentr1_core.reward import RewardSum
from agentr1_core.rollout import Play
from agentr1_core.task import Task


class StepGRPOTrainer(UpdateReporting, GRPOTrainer):
    """GRPO on step-level transitions.

    Every argument of ``trl.GRPOTrainer`` keeps its meaning, but for ``tools``, and ``reward_funcs`` may be left out
    where the environment rewards. ``GRPOConfig``'s ``temperature``, ``top_p``, ``top_k`` and ``min_p`` say how
    actions are sampled, ``max_completion_length`` how long one action may be, ``num_generations`` how many episodes
    a group has. The number of optimiser steps follows from the prompts, never from how many steps episodes take.

    Args:
        env: Environment class, made with the row's ``env_kwargs`` for each episode, or a function ``task -> AgentEnv``.
        flow: An ``AgentFlowBase`` in its place.
        tools: ``BaseTool`` objects or plain functions; without ``env`` and ``flow`` they make a ``ToolEnv``.
        context: Makes the context policy of each episode, for example ``lambda: KeepLast(2)``.
        estimator: Name, class or instance of the credit estimator.
        merge: ``"linear"`` puts a step that continues the one before it into the same row, ``"none"`` never does, and
            ``"tree"`` computes every token that rows share once, whatever they rewrote.
        tree: How large trees are and how they run, with ``merge="tree"``.
        limits: What an episode may use.
        engine: Samples the actions; by default the model in training itself, or TRL's vLLM with ``use_vllm=True``.
        engine_weights: How an engine with weights of its own gets the trainer's: ``"state_dict"`` or ``"file"``; by
            default the first of them that it takes. A LoRA adapter goes by itself to engines that take adapters, and is
            merged for others.
        reward: Rewards of agentr1 on trajectories, beside TRL's ``reward_funcs``.
        renderer: ``"auto"``, a family name, ``"template"``, a pair of name and template arguments, or a renderer.
        sampling: Overrides what the config says about sampling.
        eval_sampling: How evaluation samples; like training by default.
        concurrency: Episodes in flight at most, on each process.
        min_group_size: A group with fewer usable episodes is left out whole, and reported.
        rows_per_forward: Rows of one forward and backward; ``per_device_train_batch_size`` by default.
        importance_cap: For an engine with weights of its own, the largest ``pi_trainer / pi_engine`` of a token;
            by default TRL's ``vllm_importance_sampling_*`` settings decide.
        loss: A loss of agentr1 in place of ``loss_type``, by name or with its settings; see ``PolicyLoss``.
        critic: Settings of the critic, for estimators with values; see ``CriticSettings``.
        teacher: A model, folder or hub id, for estimators with a teacher.
        shuffle_advantages: Negative control: each trajectory gets the credit of a random one.
        hooks: Told of steps, trajectories, groups and updates, on the main process.

    Raises:
        ConfigError: A setting cannot be kept; see ``startup.py``.
    """

    def __init__(
        self,
        model: Any,
        reward_funcs: Any = None,
        args: GRPOConfig | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        processing_class: Any = None,
        reward_processing_classes: Any = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: tuple[Any, Any] = (None, None),
        quantization_config: Any = None,
        peft_config: Any = None,
        tools: Any = None,
        rollout_func: Any = None,
        environment_factory: Any = None,
        *,
        env: Any = None,
        flow: Any = None,
        context: Callable[[], Any] | None = None,
        estimator: Any = "grpo",
        merge: str = "linear",
        tree: TreeSettings | None = None,
        limits: RolloutLimits | None = None,
        engine: InferenceEngine | None = None,
        engine_weights: str | None = None,
        reward: RewardSum | None = None,
        renderer: Any = "auto",
        sampling: SamplingParams | None = None,
        eval_sampling: SamplingParams | None = None,
        concurrency: int = 256,
        min_group_size: int = 2,
        rows_per_forward: int | None = None,
        importance_cap: float | None = None,
        loss: PolicyLoss | Mapping[str, Any] | str | None = None,
        critic: CriticSettings | Mapping[str, Any] | None = None,
        teacher: Any = None,
        shuffle_advantages: bool = False,
        hooks: Any = None,
    ) -> None:
        if rollout_func is not None or environment_factory is not None:
            raise ConfigError(
                "rollout_func and environment_factory are TRL's own ways to play an episode as one row.",
                "Pass `env`, `flow` or `tools`; or use trl.GRPOTrainer with `step_rollout_func`.",
            )
        if processing_class is not None and not isinstance(processing_class, PreTrainedTokenizerBase):
            raise ConfigError(
                f"processing_class is a {type(processing_class).__name__}.", "Pass a tokenizer: rows are text only."
            )
        if args is None:
            name = model if isinstance(model, str) else get_config_model_id(model.config)
            args = GRPOConfig(f"{name.split('/')[-1]}-GRPO")
        playable = make_playable(env=env, flow=flow, tools=tools, context=context)
        self.tree = tree or TreeSettings()
        check_settings(args, merge, rows_per_forward, self.tree.path)
        check_dataset(train_dataset, args.generation_batch_size // args.num_generations)
        args.remove_unused_columns = False  # every column belongs to the task
        self.schedule = plan_schedule(args.steps_per_generation, args.gradient_accumulation_steps)
        self.policy_loss = None if loss is None else PolicyLoss.of(loss)
        self.loss_plan = (
            plan_loss(args.loss_type, args.max_completion_length) if self.policy_loss is None else self.policy_loss.plan
        )
        self.estimator = as_estimator(estimator, args.scale_rewards)
        check_extras(args, self.estimator, self.policy_loss, critic, teacher)
        self.critic: Critic | None = None
        self.teacher: Teacher | None = None
        self.merge = merge
        self.min_group_size = min_group_size
        self.shuffle_advantages = shuffle_advantages
        self.rows_per_forward = rows_per_forward or args.per_device_train_batch_size
        self.begin_reporting(hooks)
        self._forward: tuple[torch.Tensor, torch.Tensor] | None = None
        self._scored: Chunk = Chunk()
        self._engine_version: int | None = None
        self._n_eval_batches = 0
        self._n_sessions = 0

        given = reward_funcs if isinstance(reward_funcs, list) else [] if reward_funcs is None else [reward_funcs]
        super().__init__(
            model=model,
            reward_funcs=[refuse_non_numbers(function) for function in given] or [_no_reward],
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            reward_processing_classes=reward_processing_classes,
            callbacks=callbacks,
            optimizers=optimizers,
            quantization_config=quantization_config,
            peft_config=peft_config,
        )
        if not given:  # TRL insists on a reward function; here the environment or `reward` may be the only source
            self.reward_funcs, self.reward_func_names, self.reward_processing_classes = [], [], []
            self.reward_weights = torch.ones(0)

        own = self.accelerator.unwrap_model(self.model)
        if merge == "tree":
            check_tree_model(own, aux_loss=self.aux_loss_enabled, device=self.accelerator.device)
        if self.estimator.needs_values:
            told = CriticSettings.of(critic)
            check_critic(args, told.kind, merge, sharded=self._dist.is_zero3 or self._dist.is_fsdp)
            self.critic = Critic(told, own, self.estimator.value_unit, self.accelerator)
        if self.estimator.needs_teacher:
            size = own.get_input_embeddings().num_embeddings
            self.teacher = Teacher(teacher, size, args.temperature, self.accelerator)
        if engine is None and self.use_vllm:
            from agentr1_backend_trl.vllm_engine import TRLVLLMEngine

            engine = TRLVLLMEngine(self)
        elif engine is None:
            from agentr1_engine_transformers.engine import TransformersEngine

            shared = own.get_base_model() if is_peft_model(own) else own
            engine = TransformersEngine.sharing(shared, eos_token_ids=self.eos_token_ids)
        routes = engine.capabilities.weight_sync
        live = "live" in routes
        pushed = engine_weights or next((route for route in ("state_dict", "file") if route in routes), "state_dict")
        self._engine_weights = "trl" if "trl" in routes else "live" if live else pushed
        self._sends_adapter = sends_adapter(engine, own, live=live)
        sharded = "zero3" if self._dist.is_zero3 else "fsdp" if self._dist.is_fsdp else None
        check_engine(
            engine,
            args,
            live=live,
            n_processes=self.accelerator.num_processes,
            sharded=sharded,
            route=self._engine_weights,
            cap=importance_cap,
        )
        own_correction = None if self.policy_loss is None else self.policy_loss.engine_correction()
        if live and own_correction is not None:
            raise ConfigError(
                "loss.correction has nothing to correct: the engine samples from the model in training itself.",
                "Remove it, or use an engine with weights of its own.",
            )
        self._correction = None if live else own_correction or ImportanceCorrection.from_args(args, importance_cap)
        self.vllm_importance_sampling_correction = False  # folded into the advantages here, for every engine
        sampling = sampling or sampling_from_args(args)
        self.player = Player(
            playable,
            engine,
            as_renderer(renderer, self._tokenizer, dict(args.chat_template_kwargs or {})),
            sampling,
            eval_sampling or sampling,
            reward=reward,
            limits=limits or RolloutLimits(),
            concurrency=concurrency,
            seed=args.seed,
            hooks=hooks if self.accelerator.is_main_process else None,
        )
        self.report_from_now_on()

    def task_of(self, row: Mapping[str, Any], where: str) -> Task:
        """The task of a row of the data set; ``where`` names it in messages. Override it where rows only point to
        tasks."""
        return Task(row, where=where)

    # ------------------------------------------------------------------ running

    @contextlib.contextmanager
    def session(self) -> Iterator[StepGRPOTrainer]:
        """Keep engine, flow and tools open over several calls of ``train``, ``evaluate`` and ``success_on``."""
        self._n_sessions += 1
        try:
            yield self
        finally:
            self._n_sessions -= 1
            if self._n_sessions == 0:
                self.player.close()
                self._engine_version = None

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train; see ``transformers.Trainer.train``."""
        with self.session():
            return super().train(*args, **kwargs)

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """Evaluate on ``eval_dataset``: ``eval_reward``, ``eval_success`` and the other figures of training."""
        self._n_eval_batches = 0  # the same seeds each time, so that two evaluations differ by the policy alone
        with self.session():
            metrics: dict[str, float] = super().evaluate(*args, **kwargs)
        return metrics

    def success_on(self, tasks: Sequence[Task]) -> float | None:
        """Share of tasks solved in one episode each, over all ranks; ``None`` without tasks.

        Raises:
            EnvError: Every episode failed; the causes are in the message.
        """
        if not tasks:
            return None
        rank, n_ranks = self.accelerator.process_index, self.accelerator.num_processes
        plays = [Play(tasks[i], f"eval/{i}") for i in range(rank, len(tasks), n_ranks)]
        with self.session(), self.sampling_model():
            found = self.player.play(plays, training=False)
        check_some_usable(found)
        solved = [one for part in gather_object([[is_success(t) for t in found.trajectories]]) for one in part]
        return float(sum(solved) / len(solved))

    @contextlib.contextmanager
    def sampling_model(self) -> Iterator[None]:
        """The engine with the current weights, whole where DeepSpeed shards them, while it lasts."""
        version = self.state.global_step
        if self._engine_weights == "trl":
            if version != self._last_loaded_step:  # on every rank, since TRL's transfer has collectives
                self.vllm_generation.sync_weights()
                self._last_loaded_step = version
        elif version != self._engine_version and self._engine_weights != "live":
            push_weights(
                self._engine_weights,
                self,
                version,
                self.player.take_weights,
                self._tokenizer,
                adapter=self._sends_adapter,
                anew=self._engine_version is None,
            )
        if self._engine_weights != "live":
            self._engine_version = version
            yield
            self.player.rest()
            return
        with unwrap_model_for_generation(
            self.model_wrapped,
            self.accelerator,
            gather_deepspeed3_params=self.args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=self.args.gradient_checkpointing_kwargs,
        ):
            if version != self._engine_version:
                push_weights("live", self, version, self.player.take_weights, self._tokenizer)
                self._engine_version = version
            yield

    def credit_batch(self, groups: Sequence[Group]) -> CreditBatch:
        """What the estimator reads of this rank's groups, with values and a teacher's log-probs where it needs them."""
        batch = CreditBatch.from_groups(groups)
        where = {"rows_per_forward": self.rows_per_forward, "device": self.accelerator.device}
        if self.critic is not None:
            context = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
            batch = add_values(batch, groups, self.critic.values, max_length=context, **where)
        if self.teacher is not None:
            batch = add_teacher(batch, groups, self.teacher.logps, **where)
        return batch

    @property
    def corrects_engine(self) -> bool:
        """Whether the difference between the engine's policy and the trainer's is corrected for."""
        return self._correction is not None

    # ------------------------------------------------------------------ from rows of the data set to chunks

    def _prepare_inputs(self, inputs: Any) -> Any:
        """The chunks of the next part; a chunk as it is."""
        if isinstance(inputs, Chunk):
            return inputs
        if not self.model.training:
            return self._generate_and_score_completions(inputs)[0]
        if self._buffered_inputs is None and self._step == 0:
            # A resumed run goes on in the middle of what it was doing, batch names and seeds included.
            self._step = self.state.global_step * self.args.gradient_accumulation_steps
        if self._step % self._generate_every == 0 or self._buffered_inputs is None:
            self._buffered_inputs = self._generate_and_score_completions(inputs)
        return self._buffered_inputs[self._step % self.args.steps_per_generation]

    def _generate_and_score_completions(self, inputs: Any) -> list[list[Chunk]]:
        """Play, score and lay out one generation batch: the chunks of each part."""
        training = self.model.training
        if training:
            number = self._step // self._generate_every
            stream = f"{number}"
        else:
            number = self._n_eval_batches
            stream = f"eval{number}"
            self._n_eval_batches += 1
        scored = play_batch(self, inputs, stream, training=training)
        self.log_episodes(scored, training)
        parts = lay_out_batch(
            self,
            scored,
            n_windows=self.schedule.n_windows if training else 1,
            parts_per_window=self.schedule.parts_per_window if training else 1,
            rows_per_forward=self.rows_per_forward if training else self.args.per_device_eval_batch_size,
            seed=(self.args.seed, number),
        )
        needs_old = training and self.args.gradient_accumulation_steps % self._generate_every != 0
        with torch.no_grad(), disable_gradient_checkpointing(self.model, self.args.gradient_checkpointing_kwargs):
            for part in parts:
                for chunk in part:
                    self._score_before_update(chunk, needs_old or self.corrects_engine)
        return parts

    @property
    def _generate_every(self) -> int:
        return int(self.args.steps_per_generation * self.num_iterations)

    def _score_before_update(self, chunk: Chunk, needs_old: bool) -> None:
        """Add what the current weights and the reference model say about the tokens."""
        ids = torch.cat([chunk["prompt_ids"], chunk["completion_ids"]], dim=1)
        attended = torch.cat([chunk["prompt_mask"], chunk["completion_mask"]], dim=1)
        n_kept = chunk["completion_ids"].size(1)
        self._scored = chunk
        if needs_old:
            chunk["old_logps"] = self._score_rows(self.model, ids, attended, n_kept)[0]
        if self._correction is not None:
            chunk["is_ratio"] = self._correction.ratio(
                chunk["old_logps"], chunk["sampling_logps"], chunk["loss_mask"], chunk["span_ids"]
            )
            if self.loss_plan.formula != "vespo":  # a ratio is never negative, so the advantage may carry it
                chunk["advantages"] = chunk["advantages"] * chunk["is_ratio"]
        if self.beta != 0.0:
            chunk["ref_logps"] = reference_logps(self, self._score_rows, ids, attended, n_kept)

    # ------------------------------------------------------------------ one accumulation step

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Forward and backward of one part, chunk by chunk, so that memory does not grow with the episodes."""
        start = time.perf_counter()
        model.train()  # the base class does so only after it asked for inputs, whose mode hangs on it
        part = self._prepare_inputs(inputs)
        state = self.accelerator.gradient_state
        sync = state.sync_gradients
        total = torch.zeros((), device=self.accelerator.device)
        for position, chunk in enumerate(part):
            last = position == len(part) - 1
            state._set_sync_gradients(sync and last)  # DeepSpeed reads it in backward
            deferred = not last and self.accelerator.distributed_type != DistributedType.DEEPSPEED
            with self.accelerator.no_sync(model) if deferred else contextlib.nullcontext():
                total = total + super(GRPOTrainer, self).training_step(model, chunk, num_items_in_batch)
        self._step += 1
        self._current_train_step_time += time.perf_counter() - start
        if sync:
            self.close_step()
        return total

    def _compute_loss(self, model: Any, inputs: Chunk) -> torch.Tensor:
        self._scored = inputs
        learns_values = self.critic is not None and self.model.training
        if self.critic is not None and learns_values:
            self.critic.watch_policy()
        if self.policy_loss is not None:
            loss = own_loss(self, model, inputs)
        else:
            loss = step_loss(self, model, inputs, super()._compute_loss)
        return loss + self.critic.loss(inputs, loss_scale(self)) if self.critic and learns_values else loss

    def _score_rows(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        """Log-probs, entropies and balancing loss of the chunk in hand: padded as TRL does it, or as a token tree."""
        tree = self._scored.get("tree")
        if tree is None:
            return super()._get_per_token_logps_and_entropies(model, *args, **kwargs)
        wanted = bool(kwargs.get("compute_entropy"))
        return *tree_logps(self, model, tree, self.tree.path, compute_entropy=wanted), None

    def _get_per_token_logps_and_entropies(self, *args: Any, **kwargs: Any) -> Any:
        result = self._score_rows(*args, **kwargs)
        self._forward = result[:2]
        return result

    def take_forward(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Log-probs and entropies of the last forward, ``(B, C)`` each, with their graph."""
        if self._forward is None:
            raise RuntimeError("No forward has run since the last one was taken.")
        forward, self._forward = self._forward, None
        return forward

    def prediction_step(
        self, model: Any, inputs: Any, prediction_loss_only: bool, ignore_keys: list[str] | None = None
    ) -> tuple[torch.Tensor, None, None]:
        """The loss of one evaluation batch."""
        part = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            total = sum(self.compute_loss(model, chunk) for chunk in part)
        figures = self.reduce_tokens()
        for name, value in figures.items():
            if name not in ("loss", "tokens"):
                self._metrics["eval"][name].append(value)
        return torch.as_tensor(total).detach(), None, None


def _no_reward(prompts: Sequence[Any], **_: Any) -> list[float]:
    return [0.0] * len(prompts)
