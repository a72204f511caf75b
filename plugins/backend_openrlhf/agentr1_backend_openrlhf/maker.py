"""The experience maker: from one carrier a trajectory to the rows that train, with advantages of agentr1's estimators.

It replaces what OpenRLHF does between sampling and training, and leaves the forwards of its models as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from agentr1_backend_openrlhf.experiences import Row, fill_in, per_token, to_experience
from agentr1_backend_openrlhf.private_names import find
from agentr1_backend_openrlhf.round import Lesson, Reading, Round, group_trajectories, padding_row
from agentr1_backend_openrlhf.row_plan import RowPlan
from agentr1_backend_openrlhf.run import Run
from agentr1_core.errors import RewardError
from agentr1_core.rows import TrainingRow

_Base: Any = find("RemoteExperienceMaker")


class StepExperienceMaker(_Base):  # type: ignore[misc]
    """OpenRLHF's experience maker on steps."""

    def __init__(self, *args: Any, run: Run, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._agentr1 = run
        self._estimator = run.make_estimator()
        self._rounds = 0
        #: The round in the making, and what the last one taught.
        self.round: Round | None = None
        self.lesson: Lesson | None = None
        self.plan: RowPlan | None = None
        self._dealt: list[Row] = []

    @torch.no_grad()
    def make_experience_batch(self, rollout_samples: Sequence[Any]) -> list[Any]:
        """Experiences of the rows of a round, in micro-batches, the first rank's first.

        Args:
            rollout_samples: One carrier a trajectory.

        Raises:
            EnvError: Every episode failed.
            RewardError: Nothing can be trained.
        """
        config = self._agentr1.config
        trajectories = [carrier.trajectory for carrier in rollout_samples]
        groups = group_trajectories(trajectories, config.rollout.min_group_size)
        use_kl = self.initial_model_group is not None and not self.args.algo.kl.use_loss
        self._rounds += 1
        self.round = Round(
            groups,
            self._estimator,
            config.algorithm.merge,
            seconds=max((trajectory.seconds for trajectory in trajectories), default=0.0),
            has_critic=self.critic_model_group is not None,
            kl_in_reward=float(self.kl_ctl.value) if use_kl else 0.0,
            weights=self.args.agentr1_weights,
            shuffle=(config.run.seed, self._rounds) if config.algorithm.shuffle_advantages else None,
        )
        rows = list(self.round.rows)
        self.plan = plan_rows(self.args, self.round.n_training_rows, len(rows))
        rows += [padding_row()] * (self.plan.total - len(rows))
        self._dealt = [rows[number] for number in self.plan.deal([len(row) for row in rows])]
        with_logprobs = self.args.algo.advantage.is_correction_level != "off"
        return list(
            super().make_experience_batch(
                [
                    to_experience(row, with_logprobs=with_logprobs, reward=self.round.reward_of(row))
                    for row in self._dealt
                ]
            )
        )

    @torch.no_grad()
    def compute_advantages_and_returns(self, experiences: Sequence[Any]) -> list[Any]:
        """Called by ``make_experience_batch`` once all models have read the rows."""
        if self.round is None:
            raise RuntimeError("Experiences are made by make_experience_batch.")
        readings: dict[int, Reading] = {}
        for experience in experiences:
            for place, number in enumerate(experience.index):
                readings[number] = self._reading(experience, place, self._dealt[number])
        numbers = {id(row): number for number, row in enumerate(self._dealt)}
        self.lesson = self.round.assign([readings[numbers[id(row)]] for row in self.round.rows])
        n_training = sum(target is not None for target in self.lesson.targets)
        if not n_training or self.plan is None:
            raise RewardError(
                "Every token of the round is masked.", "See `algorithm.estimator.truncated` and the rewards."
            )
        self.plan = self.plan.with_training(n_training)
        target_of = {id(row): target for row, target in zip(self.round.rows, self.lesson.targets, strict=True)}
        for experience in experiences:
            rows = [self._dealt[number] for number in experience.index]
            fill_in(experience, rows, [target_of.get(id(row)) for row in rows])
            for name in ("kl", "logprobs_diff"):  # means over no tokens
                experience.info[name] = torch.nan_to_num(experience.info[name])
        return list(experiences)

    def _reading(self, experience: Any, place: int, row: Row) -> Reading:
        def read(field: str) -> Any:
            if getattr(experience, field) is None:
                return None
            if isinstance(row, TrainingRow):
                return per_token(experience, field, place, row)
            return getattr(experience, field)[place, len(row) - 2 : len(row) - 1].double().numpy()

        return Reading(
            read("action_log_probs"),
            read("values") if self.critic_model_group is not None else None,
            read("kl") if self.initial_model_group is not None and not self.args.algo.kl.use_loss else None,
        )


def plan_rows(args: Any, n_training: int, n_rows: int) -> RowPlan:
    """How the rows of a round are cut, from OpenRLHF's arguments.

    A round has as many optimiser steps as ``rollout.batch_size * n_samples_per_prompt`` is of ``train.batch_size``.
    """
    n_gpus = args.actor.num_nodes * args.actor.num_gpus_per_node
    samples = args.rollout.batch_size * args.rollout.n_samples_per_prompt
    return RowPlan.of(
        n_rows,
        optimizer_steps=max(samples // args.train.batch_size, 1),
        n_ranks=n_gpus // args.ds.ring_attn_size // args.ds.tensor_parallel_size,
        train_micro_batch=args.train.micro_batch_size,
        forward_micro_batch=args.rollout.micro_batch_size,
        n_training=n_training,
    )
