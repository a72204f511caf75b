"""Rounds in which the critic trains alone (``critic.freezing_steps``): the policy learns nothing from them later."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import ray

from agentr1_backend_openrlhf.model_actors import StepPolicyActor
from agentr1_backend_openrlhf.trainer import StepPPOTrainer


class Workers:
    """Stands for the workers of one model, whose methods run here."""

    def __init__(self, worker: Any) -> None:
        self.worker = worker

    def async_run_method(self, method_name: str, **told: Any) -> list[Any]:
        return [getattr(self.worker, method_name)(**told) or {}]


class Learner(StepPolicyActor):
    """A policy worker that notes the rows it would train on."""

    def __init__(self) -> None:
        self.trainer = SimpleNamespace(replay_buffer=[])
        self.trained: list[list[str]] = []

    def fit(self, kl_ctl: float = 0) -> None:
        self.trained.append(list(self.trainer.replay_buffer))
        self.trainer.replay_buffer.clear()


def test_the_first_round_of_the_policy_has_its_own_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "get", lambda refs: refs)
    policy, critic = Learner(), SimpleNamespace(plan_round=lambda optimizer_steps: None, fit=lambda: None)
    trainer = object.__new__(StepPPOTrainer)
    trainer.experience_maker = SimpleNamespace(plan=SimpleNamespace(optimizer_steps=1))
    trainer.actor_model_group, trainer.critic_model_group = Workers(policy), Workers(critic)
    trainer.kl_ctl = SimpleNamespace(value=0.0)
    trainer.args = SimpleNamespace(critic=SimpleNamespace(freezing_steps=1), ds=SimpleNamespace(enable_sleep=False))

    for step in range(4):
        policy.trainer.replay_buffer.append(f"rows of round {step}")
        trainer.ppo_train(step)

    assert policy.trained == [["rows of round 2"], ["rows of round 3"]]
