"""OpenRLHF's synchronous trainer on steps: its loop, its workers, its checkpoints; agentr1's episodes and credit.

``train`` gives it to OpenRLHF's command line in the place of ``PPOTrainer``. It runs as one Ray actor.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from typing import Any

import ray

from agentr1_backend_openrlhf.checks import check_arguments
from agentr1_backend_openrlhf.events import EVENTS, EventWriter
from agentr1_backend_openrlhf.maker import StepExperienceMaker
from agentr1_backend_openrlhf.private_names import plain_class
from agentr1_backend_openrlhf.run import Run, load_run
from agentr1_backend_openrlhf.samples import CollectorGenerator, OwnEnginesGenerator
from agentr1_core.metrics import success_rate

_Base: Any = plain_class("PPOTrainer")


class StepPPOTrainer(_Base):  # type: ignore[misc]
    """OpenRLHF's trainer on the steps of a run file's episodes."""

    def __init__(self, pretrain: str, strategy: Any, *args: Any, **kwargs: Any) -> None:
        self._agentr1: Run = load_run()
        if not hasattr(strategy.args, "agentr1_weights"):
            check_arguments(strategy.args, self._agentr1)
        super().__init__(pretrain, strategy, *args, **kwargs)
        given: dict[str, Any] = {
            "run": self._agentr1,
            "strategy": strategy,
            "prompts_dataloader": self.prompts_dataloader,
            "eval_dataloader": self.eval_dataloader,
            "tokenizer": self.tokenizer,
            "vllm_engines": self.vllm_engines,
        }
        own = self.vllm_engines is not None
        self.samples_generator = OwnEnginesGenerator(**given) if own else CollectorGenerator(model=pretrain, **given)
        self.experience_maker = StepExperienceMaker(
            self.actor_model_group,
            self.critic_model_group,
            self.reward_model_group,
            self.reference_model_group,
            self.kl_ctl,
            strategy,
            self.tokenizer,
            run=self._agentr1,
        )
        self._events = EventWriter(self._agentr1.folder / EVENTS)
        self._version = 0
        self._waiting: dict[str, float] | None = None
        self._evaluated: tuple[int, float | None] = (-1, None)

    def fit(self, global_step: int = 0) -> None:
        """Evaluate, train, evaluate; environments, tools and engines are closed on every path."""
        try:
            self._version = int(self.init_checkpoint_states()["global_step"])
            if not self._version:
                self._events.success("before", self._success())
            super().fit(global_step)
            last, share = self._evaluated
            self._events.success("after", share if last == self._version else self._success())
        finally:
            try:
                self.samples_generator.close()
            finally:
                self._events.close()

    def train_step(self, rollout_samples: Any, global_step: int) -> tuple[dict[str, Any], int]:
        """One round; reports it once the engine has the new weights."""
        started = time.monotonic()
        self._version = global_step + 1
        status, step = super().train_step(rollout_samples, global_step)
        if self.vllm_engines is None:
            self.broadcast_to_vllm()
        metrics = {**self._metrics(status), "step_seconds": time.monotonic() - started}
        for group in self.experience_maker.round.groups:
            self._events.group(group)
        if self.eval_dataloader is not None and step % self.args.eval.steps == 0:
            self._waiting = metrics  # the loop evaluates next, and the update is reported with that
        else:
            self._events.update(step, metrics)
        return {**status, **{f"agentr1/{name}": value for name, value in metrics.items()}}, step

    def evaluate(self, global_step: int, **generate_kwargs: Any) -> dict[str, Any]:
        """OpenRLHF's evaluation, with the share of solved tasks as ``eval/success`` of the update before it."""
        logs = super().evaluate(global_step, **generate_kwargs)
        share = self._success_of_held_out()
        self._evaluated = global_step, share
        if self._waiting is not None:
            found = {} if share is None else {"eval/success": share}
            self._events.update(global_step, {**self._waiting, **found})
            self._waiting = None
        return dict(logs)

    def ppo_train(self, global_steps: int) -> dict[str, Any]:
        """Tell the workers how many optimiser steps the round has, and let them train."""
        steps = self.experience_maker.plan.optimizer_steps
        groups = [group for group in (self.actor_model_group, self.critic_model_group) if group is not None]
        ray.get([ref for group in groups for ref in group.async_run_method("plan_round", optimizer_steps=steps)])
        status = dict(super().ppo_train(global_steps))
        if global_steps <= self.args.critic.freezing_steps:
            # OpenRLHF let the critic train alone, and would leave these rows to the policy's first round.
            ray.get(self.actor_model_group.async_run_method("forget_round"))
        return status

    def broadcast_to_vllm(self) -> None:
        """Give the engine the policy's weights."""
        if self.vllm_engines is not None:
            super().broadcast_to_vllm()
            return
        folder = self._agentr1.folder / "weights"
        try:
            ray.get(self.actor_model_group.async_run_method("write_weights", folder=str(folder)))
            self.samples_generator.take_weights(str(folder), self._version)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _compute_rollout_stats(self, experiences: Any) -> dict[str, float]:
        """Of the episodes; OpenRLHF's own would count rows, padding among them."""
        figures = self.experience_maker.lesson.figures
        return {
            "rollout/reward_mean": figures["reward"],
            "rollout/reward_std": figures["reward_std"],
            "rollout/response_length_mean": figures["tokens/sampled"],
            "rollout/truncated_rate": figures["actions/cut_share"],
            "rollout/num_samples": figures["episodes"],
        }

    def _success(self) -> float | None:
        """Play the held-out tasks and give the share that is solved now; ``None`` without any."""
        if self.eval_dataloader is None:
            return None
        told = {**self.generate_kwargs, "temperature": self.args.eval.temperature}
        told["n_samples_per_prompt"] = self.args.eval.n_samples_per_prompt
        self.samples_generator.generate_eval_samples(**told)
        return self._success_of_held_out()

    def _success_of_held_out(self) -> float | None:
        played = self.samples_generator.held_out
        for trajectory in played:
            self._events.held_out(trajectory)
        return success_rate([trajectory for trajectory in played if not trajectory.stop_reason.is_failure])

    def _metrics(self, status: Mapping[str, Any]) -> dict[str, float]:
        """The round under the names that every backend reports."""
        plan = self.experience_maker.plan
        figures = dict(self.experience_maker.lesson.figures)
        told = {
            "loss": "agentr1/loss",
            "grad_norm": "actor_grad_norm",
            "learning_rate": "actor_lr",
            "entropy": "entropy_loss",
            "clip_ratio": "ppo_clip_ratio",
            "critic/loss": "agentr1/critic_loss",
            "critic/grad_norm": "agentr1/critic_grad_norm",
        }
        figures |= {ours: float(status[theirs]) for ours, theirs in told.items() if theirs in status}
        if self.reference_model_group is not None and "kl" in status:
            figures["kl"] = float(status["kl"])
        figures |= {"rows": float(plan.n_rows), "rows/padding": float(plan.n_padding)}
        figures["optimizer_steps"] = float(plan.optimizer_steps * self.args.train.max_epochs)
        return figures
