"""agentr1's own losses inside the trainer: loss and gradient against the formula on the raw steps."""

import importlib.util
from pathlib import Path

import pytest
import torch

from agentr1_backend_trl.policy_loss import PolicyLoss
from agentr1_core.errors import ConfigError

spec = importlib.util.spec_from_file_location("gradient_tools", Path(__file__).with_name("test_trl_gradient.py"))
tools = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tools)
apart, log_probs, train_one = tools.apart, tools.log_probs, tools.train_one


def on_policy_reference(model, groups, weight):
    """On policy every loss has REINFORCE's gradient; only the weights differ."""
    trajectories = [t for group in groups for t in group.trajectories]
    totals = {
        "tokens": sum(t.n_sampled for t in trajectories),
        "steps": sum(len(t.steps) for t in trajectories),
        "trajectories": len(trajectories),
    }
    for group in groups:
        returns = torch.tensor([t.ret for t in group.trajectories])
        for trajectory, ret in zip(group.trajectories, returns, strict=True):
            advantage = (ret - returns.mean()) / (returns.std() + 1e-6) if returns.std() > 0 else torch.zeros(())
            for step in trajectory.steps:
                loss = -advantage * weight(totals, trajectory, step) * log_probs(model, step).sum()
                loss.backward()
    return torch.cat([p.grad.reshape(-1) for p in model.parameters()])


WEIGHTS = {
    "token-mean": lambda n, t, s: 1 / n["tokens"],
    "traj-mean-token-mean": lambda n, t, s: 1 / (n["trajectories"] * t.n_sampled),
    "traj-mean-token-sum": lambda n, t, s: 1 / n["trajectories"],
    "dr-grpo": lambda n, t, s: 1 / (n["trajectories"] * 40),
    "step-mean": lambda n, t, s: 1 / (n["steps"] * len(s.action)),
    "traj-mean-step-mean-token-sum": lambda n, t, s: 1 / (n["trajectories"] * len(t.steps)),
}


@pytest.mark.parametrize("name", ["ppo", "gspo", "cispo", "reinforce"])
def test_each_loss_on_policy(make_trainer, tiny, name):
    trainer, recorder, gradient = train_one(make_trainer, loss=name, rows_per_forward=3)
    mode = trainer.loss_plan.mode
    assert apart(gradient, on_policy_reference(tiny.model(), recorder.groups, WEIGHTS[mode])) < 1e-5
    assert trainer.last_update["clip_ratio"] == 0
    assert trainer.last_update["logprob_gap_max"] < 1e-4


@pytest.mark.parametrize("mode", ["dr-grpo", "step-mean", "traj-mean-step-mean-token-sum", "traj-mean-token-mean"])
def test_each_average(make_trainer, tiny, mode):
    told = {"name": "ppo", "aggregation": mode, **({"constant": 40} if mode == "dr-grpo" else {})}
    _, recorder, gradient = train_one(make_trainer, loss=told, rows_per_forward=2)
    assert apart(gradient, on_policy_reference(tiny.model(), recorder.groups, WEIGHTS[mode])) < 1e-5


def test_ppo_is_trls_clipped_loss_off_policy_too(make_trainer):
    """Three optimiser steps on one batch, so that ratios move and some are clipped."""
    settings = {"steps_per_generation": 2, "num_iterations": 2, "max_steps": 4, "learning_rate": 3e-2}
    settings["per_device_train_batch_size"] = 4
    trl, _, _ = train_one(make_trainer, {**settings, "epsilon": 0.1, "loss_type": "dapo"})
    own, _, _ = train_one(
        make_trainer, settings, loss={"name": "ppo", "clip_low": 0.1, "clip_high": 0.1, "dual_clip": None}
    )
    assert trl.last_update["clip_ratio"] > 0
    for name in ("loss", "clip_ratio", "entropy", "drift", "grad_norm"):
        assert own.last_update[name] == pytest.approx(trl.last_update[name], rel=1e-4, abs=1e-6)
    for one, other in zip(own.model.parameters(), trl.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["gspo", "ppo", "cispo"])
def test_merging_leaves_an_off_policy_update_alone(make_trainer, tiny, name):
    settings = {"num_iterations": 2, "max_steps": 2, "learning_rate": 3e-2}
    told = {"name": name, "clip_low": 0.05, "clip_high": 0.05}
    ends = []
    for merge in ("linear", "none"):
        dataset = tiny.dataset(append=True)
        trainer, _, _ = train_one(make_trainer, settings, loss=told, merge=merge, dataset=dataset)
        ends.append(trainer.last_update)
    assert ends[0]["share_merged"] > 0.3
    assert ends[0]["clip_ratio"] > 0
    for figure in ("loss", "clip_ratio", "grad_norm"):
        assert ends[0][figure] == pytest.approx(ends[1][figure], rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("kl", ["k1", "k2", "k3"])
def test_kl_and_entropy_terms(make_trainer, tiny, tmp_path, kl):
    tiny.model(seed=0).save_pretrained(tmp_path / "ref")
    policy = tiny.model(seed=1)
    policy.config._name_or_path = str(tmp_path / "ref")
    config = {"beta": 0.5, "use_bias_correction_kl": False}
    _, recorder, gradient = train_one(make_trainer, config, model=policy, loss={"name": "ppo", "kl": kl})
    other, model = tiny.model(seed=0), tiny.model(seed=1)
    steps = [s for group in recorder.groups for t in group.trajectories for s in t.steps]
    n_tokens = sum(len(step.action) for step in steps)
    for step in steps:
        x = log_probs(model, step) - log_probs(other, step).detach()
        term = {"k1": x, "k2": x**2 / 2, "k3": torch.exp(-x) + x - 1}[kl]
        (0.5 * term.sum() / n_tokens).backward()
    kl_part = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    policy_part = on_policy_reference(tiny.model(seed=1), recorder.groups, WEIGHTS["token-mean"])
    assert apart(gradient, policy_part + kl_part) < 1e-5


def test_settings_are_checked(make_trainer):
    with pytest.raises(ConfigError, match="'name'"):
        PolicyLoss.of("pop")
    with pytest.raises(ConfigError, match="clip"):
        PolicyLoss.of({"name": "ppo", "clip": 1})
    with pytest.raises(ConfigError, match="dr-grpo"):
        PolicyLoss.of({"name": "ppo", "aggregation": "dr-grpo"})
    with pytest.raises(ConfigError, match="importance_sampling_level"):
        make_trainer({"importance_sampling_level": "sequence"}, merge="none", loss="gspo")
    with pytest.raises(ConfigError, match="nothing to correct"):
        make_trainer(loss={"name": "ppo", "correction": "tis"})


def test_corrections_for_other_engines():
    for name, mode, low in (("tis", "token_truncate", 0.0), ("mis", "token_mask", 0.0), ("icepop", "token_mask", 0.5)):
        found = PolicyLoss.of({"name": "ppo", "correction": name}).engine_correction()
        assert (found.mode, found.clip_max, found.clip_min) == (mode, 2.0, low)
    assert PolicyLoss.of("ppo").engine_correction() is None
