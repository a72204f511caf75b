"""A backend for each rule that breaks it, and what the kit says of it."""

import json
from dataclasses import replace

import numpy as np
import pytest

from agentr1_core.backend import BackendCapabilities, TrainingBackend, TrainingJob, TrainingResult
from agentr1_core.credit import GRPO
from agentr1_core.engine import SamplingParams
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import RolloutLimits
from agentr1_core.task import Task
from agentr1_core.testing.backend_kit import REQUIRED_METRICS, BackendKit
from agentr1_core.testing.rules import rules_of
from agentr1_core.testing.scripted_engine import ScriptedEngine


class Pretends(TrainingBackend):
    """Trains nothing and reports as if it did, which is all the kit sees; the broken ones change one thing each."""

    name = "pretends"
    capabilities = BackendCapabilities(resume=True)
    ledger = {"sampled": 10, "trained": 7, "masked": 2, "dropped": 1}  # noqa: RUF012
    metrics = dict.fromkeys(REQUIRED_METRICS, 0.5)

    def train(self, job):
        self.check(job)
        saved = job.run_dir / "saved.json"
        done = json.loads(saved.read_text()) if self.goes_on(job) else 0
        for step in range(done + 1, job.updates + 1):
            job.hooks.agentr1_update(metrics=self.metrics, step=step)
        job.run_dir.mkdir(parents=True, exist_ok=True)
        saved.write_text(json.dumps(job.updates))
        return self.result(job)

    def goes_on(self, job):
        return job.resume

    def result(self, job):
        checkpoint = job.run_dir / "checkpoint"
        checkpoint.mkdir(exist_ok=True)
        (checkpoint / "config.json").write_text("{}")
        return TrainingResult(0.25, 0.5, job.updates, self.ledger, checkpoint)


class SkipsTheReport(Pretends):
    metrics = {name: 0.5 for name in REQUIRED_METRICS if name != "grad_norm"}  # noqa: RUF012


class StopsEarly(Pretends):
    def result(self, job):
        return replace(super().result(job), updates=job.updates - 1)


class LosesTokens(Pretends):
    ledger = {"sampled": 10, "trained": 7, "masked": 2, "dropped": 0}  # noqa: RUF012


class SavesNoModel(Pretends):
    def result(self, job):
        return replace(super().result(job), checkpoint=job.run_dir / "nowhere")


class CountsSuccesses(Pretends):
    def result(self, job):
        return replace(super().result(job), success_after=3)


class TrainsAnyLayout(Pretends):
    def check(self, job):
        """Whatever the job wants."""


class BeginsAgain(Pretends):
    def goes_on(self, job):
        return False


class CannotResumeAndDoesNotSaySo(TrainsAnyLayout):
    capabilities = BackendCapabilities(resume=False)


class Kit(BackendKit):
    backend = Pretends
    gradient = np.array([1.0, 2.0], dtype=np.float32)

    def make_backend(self):
        return self.backend()

    def make_job(self, run_dir):
        return TrainingJob(
            model="none",
            run_dir=run_dir,
            train_tasks=[Task({})],
            eval_tasks=[Task({})],
            flow=lambda: AgentEnvLoop(lambda task: None),
            reward=None,
            tools=None,
            estimator=GRPO(),
            engine=(ScriptedEngine, {}),
            limits=RolloutLimits(),
            sampling=SamplingParams(),
            eval_sampling=SamplingParams(),
            group_size=2,
            prompts_per_update=1,
            updates=2,
            concurrency=1,
            min_group_size=2,
            merge="none",
            renderer=("auto", {}),
            settings={},
        )

    def gradients(self):
        return self.gradient, np.array([1.0, 2.0], dtype=np.float32)


class TestPretendsKeepsTheContract(Kit):
    pass


BROKEN = [
    (SkipsTheReport, "backend/reports", "without grad_norm"),
    (StopsEarly, "backend/reports", "1 updates of 2"),
    (LosesTokens, "backend/ledger", "10 tokens sampled, 9 accounted for"),
    (SavesNoModel, "backend/checkpoint", "no model in"),
    (CountsSuccesses, "backend/success", "a share, not 3"),
    (TrainsAnyLayout, "backend/capabilities", "DID NOT RAISE"),
    (BeginsAgain, "backend/resume", "resumed after update 2 it reports the updates [1, 2, 3]"),
    (CannotResumeAndDoesNotSaySo, "backend/resume", "DID NOT RAISE"),
]


@pytest.mark.parametrize(("backend", "rule", "why"), BROKEN, ids=[each.__name__ for each, *_ in BROKEN])
def test_a_broken_backend_fails_its_rule(told, tmp_path, backend, rule, why):
    kit = type("BrokenKit", (Kit,), {"backend": backend})
    assert why in told(kit, rule, trained=kit().train(tmp_path / "trained"), tmp_path=tmp_path / "other")


@pytest.mark.parametrize("wrong", [[1.0, 2.1], [0.0, 0.0], [1.0]])
def test_a_wrong_gradient_fails_its_rule(told, wrong):
    kit = type("BrokenKit", (Kit,), {"gradient": np.array(wrong, dtype=np.float32)})
    assert "gradient" in told(kit, "backend/gradient")


def test_every_rule_of_backends_has_a_broken_one():
    assert {rule for _, rule, _ in BROKEN} | {"backend/gradient"} == set(rules_of(BackendKit))
