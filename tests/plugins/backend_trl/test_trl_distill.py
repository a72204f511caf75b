"""On-policy distillation with a real teacher model."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from agentr1_core.errors import ConfigError

spec = importlib.util.spec_from_file_location("gradient_tools", Path(__file__).with_name("test_trl_gradient.py"))
tools = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tools)
apart, log_probs, train_one = tools.apart, tools.log_probs, tools.train_one


@pytest.mark.parametrize(("merge", "temperature"), [("linear", 0.7), ("none", 1.0)])
def test_each_token_is_judged_by_the_teacher(make_trainer, tiny, merge, temperature):
    """The advantage is what the teacher, reading the step's own prompt and action, says of each token."""
    dataset, teacher = tiny.dataset(append=True), tiny.model(seed=5)
    _, recorder, gradient = train_one(
        make_trainer,
        {"temperature": temperature},
        estimator="distill",
        teacher=teacher,
        dataset=dataset,
        merge=merge,
    )
    model = tiny.model()
    steps = [s for group in recorder.groups for t in group.trajectories for s in t.steps]
    n_tokens = sum(len(step.action) for step in steps)
    for step in steps:
        with torch.no_grad():
            judged = log_probs(tiny.model(seed=5), step, temperature) - torch.tensor(step.action.logprobs)
        (-(judged * log_probs(model, step, temperature)).sum() / n_tokens).backward()
    assert apart(gradient, torch.cat([p.grad.reshape(-1) for p in model.parameters()])) < 1e-4


def test_a_teacher_equal_to_the_policy_teaches_nothing(make_trainer, tiny):
    trainer, _, gradient = train_one(make_trainer, estimator="distill", teacher=tiny.model())
    assert float(gradient.norm()) < 1e-5
    assert trainer.last_update["credit/teacher_gap"] == pytest.approx(0, abs=1e-6)


def test_the_policy_comes_nearer_to_its_teacher(make_trainer, tiny, tmp_path):
    """The same model with a flatter distribution learns to be as sharp as its teacher."""
    teacher, policy = tiny.model(), tiny.model()
    with torch.no_grad():
        teacher.model.embed_tokens.weight *= 25  # tied, so its logits grow too
        policy.model.embed_tokens.weight *= 12
    teacher.save_pretrained(tmp_path / "teacher")
    settings = {"max_steps": 30, "learning_rate": 1e-2}
    told = {"estimator": "distill", "teacher": str(tmp_path / "teacher"), "loss": "reinforce"}
    _, recorder, _ = train_one(make_trainer, settings, model=policy, **told)
    gaps = [update["credit/teacher_gap"] for update in recorder.updates]  # minus an estimate of KL(policy, teacher)
    assert np.mean(gaps[:5]) < -0.2
    assert np.mean(gaps[-5:]) > 0.25 * np.mean(gaps[:5])


def test_a_teacher_must_read_the_same_tokens(make_trainer, tiny):
    other = tiny.model()
    other.resize_token_embeddings(300)
    with pytest.raises(ConfigError, match="token embeddings"):
        make_trainer(estimator="distill", teacher=other)
    with pytest.raises(ConfigError, match="cannot be loaded"):
        make_trainer(estimator="distill", teacher="/nowhere/at/all")
