"""GAE end to end on a tiny model: values, the gradients of policy and critic, resuming, and what is refused."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from agentr1_backend_trl.critic import CRITIC_FILE, explained_variance
from agentr1_core.credit import CreditBatch
from agentr1_core.errors import ConfigError

spec = importlib.util.spec_from_file_location("gradient_tools", Path(__file__).with_name("test_trl_gradient.py"))
tools = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tools)
apart, log_probs, train_one = tools.apart, tools.log_probs, tools.train_one

BOTH = pytest.mark.parametrize("kind", ["separate", "shared"])


def head_weights(critic):
    """A head that is not zero, so that values differ."""
    torch.manual_seed(9)
    torch.nn.init.normal_(critic._own["head"].weight, std=0.5)


def state_values(backbone, head, step):
    """V before each sampled token of a step, from its own prompt and action alone."""
    ids = torch.tensor(np.concatenate([step.prompt_ids, step.action.token_ids]), dtype=torch.long)
    hidden = backbone(input_ids=ids[None]).last_hidden_state[0]
    return (hidden @ head.weight.T + head.bias)[len(step.prompt_ids) - 1 : -1, 0]


def gae_reference(model, backbone, head, groups, unit, gamma=0.9, lam=0.8):
    """Raw advantages and returns of each step, ``(n_tokens,)``, by the recursion written out."""
    found = {}
    for trajectory in (t for group in groups for t in group.trajectories):
        units = []
        for step in trajectory.steps:
            values = state_values(backbone, head, step).detach()
            values = values if unit == "token" else values[:1]
            reward = torch.zeros_like(values)
            reward[-1] = step.reward or 0.0
            units += list(zip([id(step)] * len(values), values.tolist(), reward.tolist(), strict=True))
        ahead, following = 0.0, 0.0  # the walk ends by itself
        for key, value, reward in reversed(units):
            ahead = reward + gamma * following - value + gamma * lam * ahead
            following = value
            found.setdefault(key, []).insert(0, (ahead, ahead + value, value))
    return found


@pytest.mark.parametrize(
    ("kind", "estimator", "append"),
    [
        ("separate", "step_gae", True),
        ("separate", "token_gae", False),
        ("shared", "step_gae", False),
        ("shared", "token_gae", True),
    ],
)
def test_gradients_of_policy_and_critic(make_trainer, tiny, kind, estimator, append):
    unit = "token" if estimator == "token_gae" else "step"
    caught = {}

    def make(settings, **more):
        trainer = make_trainer(settings, **more)
        head_weights(trainer.critic)
        step = trainer.critic.step

        def spy():
            caught["critic"] = [p.grad.clone() for p in trainer.critic.parameters]
            return step()

        trainer.critic.step = spy
        return trainer

    _, recorder, gradient = train_one(
        make,
        estimator=_estimator(estimator),
        critic={"kind": kind, "weight": 0.5, "clip": None},
        dataset=tiny.dataset(append=append),
        rows_per_forward=3,
    )
    policy, backbone = tiny.model(), tiny.model().model
    head = torch.nn.Linear(32, 1)
    torch.nn.init.zeros_(head.bias)
    torch.manual_seed(9)
    torch.nn.init.normal_(head.weight, std=0.5)
    judged = gae_reference(policy, backbone, head, recorder.groups, unit)
    steps = [s for group in recorder.groups for t in group.trajectories for s in t.steps]
    n_tokens, n_units = sum(len(s.action) for s in steps), sum(map(len, judged.values()))
    assert n_units == (n_tokens if unit == "token" else len(steps))
    reader = policy.model if kind == "shared" else backbone
    loss = torch.zeros(())
    for step in steps:
        advantage, target, _ = torch.tensor(judged[id(step)]).T
        loss = loss - (advantage * log_probs(policy, step)).sum() / n_tokens
        values = state_values(reader, head, step)
        values = values if unit == "token" else values[:1]
        loss = loss + 0.5 * ((values - target) ** 2 / 2).sum() / n_units
    loss.backward()
    assert apart(gradient, torch.cat([p.grad.reshape(-1) for p in policy.parameters()])) < 1e-4
    own = [*(backbone.parameters() if kind == "separate" else ()), *head.parameters()]
    found = torch.cat([g.reshape(-1) for g in caught["critic"]])
    assert apart(found, torch.cat([p.grad.reshape(-1) for p in own])) < 1e-4


def _estimator(name, **told):
    from agentr1_core.credit import ESTIMATORS

    return ESTIMATORS[name]({"gamma": 0.9, "lam": 0.8, "whiten": False, **told})


@BOTH
def test_values_of_cut_episodes_and_of_every_state(make_trainer, tiny, kind):
    """Episodes of up to six turns under a limit of four: what would have come next is valued, unless it is too long."""
    caught = []

    def make(settings, **more):
        trainer = make_trainer(settings, **more)
        head_weights(trainer.critic)
        original = trainer.credit_batch

        def spy(groups):
            caught.append((groups, original(groups)))
            return caught[-1][1]

        trainer.credit_batch = spy
        return trainer

    dataset = tiny.dataset(append=True)
    dataset = dataset.map(lambda row: {"env_kwargs": {**row["env_kwargs"], "turns": 6}})
    trainer, _, _ = train_one(make, estimator="step_gae", critic={"kind": kind}, dataset=dataset)
    groups, batch = caught[0]
    backbone, head = tiny.model().model, torch.nn.Linear(32, 1)
    torch.nn.init.zeros_(head.bias)
    torch.manual_seed(9)
    torch.nn.init.normal_(head.weight, std=0.5)
    with torch.no_grad():
        expected = [state_values(backbone, head, s) for g in groups for t in g.trajectories for s in t.steps]
        np.testing.assert_allclose(batch.token_values, torch.cat(expected), atol=1e-5)
        np.testing.assert_allclose(batch.step_values, [values[0] for values in expected], atol=1e-5)
        ends = [t.steps[-1] for g in groups for t in g.trajectories]
        after = [
            np.nan
            if end.terminated
            else head(
                backbone(torch.tensor(end.next_observation.prompt_ids[None]).long()).last_hidden_state[0, -1]
            ).item()
            for end in ends
        ]
    assert np.isfinite(after).any()
    np.testing.assert_allclose(batch.next_values[batch.last], after, atol=1e-5)
    assert np.isnan(batch.next_values[~batch.last]).all()
    assert trainer.last_update["credit/bootstrap_unknown"] == 0


def test_a_next_observation_beyond_the_context_has_no_value(tiny, make_trainer):
    dataset = tiny.dataset(append=True)
    dataset = dataset.map(lambda row: {"env_kwargs": {**row["env_kwargs"], "turns": 6}})

    def make(settings, **more):
        trainer = make_trainer(settings, **more)
        trainer.model.config.max_position_embeddings = 8  # the engine has read it already
        return trainer

    trainer, _, _ = train_one(make, estimator="step_gae", dataset=dataset)
    assert trainer.last_update["credit/bootstrap_unknown"] == trainer.last_update["count/stop/max_steps"] > 0


@BOTH
def test_the_critic_learns(make_trainer, kind):
    """Many passes over one batch: no constant explains the returns of different states as well as it then does."""
    settings = {"num_iterations": 30, "max_steps": 30, "learning_rate": 1e-4}
    told = {"kind": kind, "learning_rate": 1e-2, "clip": None}
    caught = []

    def make(settings, **more):
        trainer = make_trainer(settings, **more)
        original = trainer.credit_batch
        trainer.credit_batch = lambda groups: caught.append(groups) or original(groups)
        return trainer

    trainer, recorder, _ = train_one(make, settings, estimator=_estimator("step_gae", gamma=1.0, lam=1.0), critic=told)
    losses = [update["critic/loss"] for update in recorder.updates]
    returns = np.concatenate([_returns(trajectory) for group in caught[0] for trajectory in group.trajectories])
    assert losses[-1] < 0.9 * returns.var() / 2 < losses[0]
    assert {"critic/explained_variance", "critic/value", "critic/return", "critic/grad_norm"} <= set(
        trainer.last_update
    )


def _returns(trajectory):
    """Return-to-go of each step, which is the target while all values are zero and lambda is one."""
    return np.cumsum([step.reward for step in trajectory.steps][::-1])[::-1]


def test_clipped_tokens_of_the_critic_are_counted(make_trainer):
    settings = {"num_iterations": 3, "max_steps": 3}
    told = {"learning_rate": 0.3, "clip": 0.01}
    trainer, _, _ = train_one(make_trainer, settings, estimator="token_gae", critic=told)
    assert trainer.last_update["critic/clip_ratio"] > 0


@BOTH
def test_a_resumed_run_goes_on_with_its_critic(make_trainer, tiny, tmp_path, kind):
    settings = {"max_steps": 4, "save_strategy": "steps", "save_steps": 2}
    told = {"estimator": "step_gae", "critic": {"kind": kind, "learning_rate": 1e-2}}
    whole = make_trainer(settings, **told)
    whole.train()
    folder = tmp_path / "out" / "checkpoint-2"
    assert (folder / CRITIC_FILE).is_file()
    assert json.loads((folder / "trainer_state.json").read_text())["global_step"] == 2
    again = make_trainer(settings, **told)
    again.train(resume_from_checkpoint=str(folder))
    for one, other in zip(whole.critic.parameters, again.critic.parameters, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    for one, other in zip(whole.model.parameters(), again.model.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    saved = sorted(path.name for path in (tmp_path / "out" / "checkpoint-4").iterdir())
    weights = [name for name in saved if name.endswith(".safetensors")]
    assert weights == ["model.safetensors"]  # the policy's alone

    (folder / CRITIC_FILE).unlink()
    with pytest.raises(ConfigError, match=CRITIC_FILE):
        make_trainer(settings, **told).train(resume_from_checkpoint=str(folder))


def test_steppo(make_trainer):
    """Step GAE with one ratio for each step's action: StepPO."""
    trainer, _, _ = train_one(make_trainer, {"max_steps": 2}, estimator="step_gae", loss="gspo")
    assert trainer.loss_plan.mode == "step-mean"
    assert trainer.policy_loss.bounds == (3e-4, 4e-4)
    assert np.isfinite(trainer.last_update["loss"])


def test_what_cannot_be_done_is_refused(make_trainer):
    with pytest.raises(ConfigError, match="reads no values"):
        make_trainer(estimator="grpo", critic={})
    with pytest.raises(ConfigError, match="'kind'"):
        make_trainer(estimator="step_gae", critic={"kind": "twin"})
    with pytest.raises(ConfigError, match="cannot be loaded"):
        make_trainer(estimator="step_gae", critic={"model": "/nowhere/at/all"})
    with pytest.raises(ConfigError, match="no use for a teacher"):
        make_trainer(estimator="grpo", teacher="x")
    with pytest.raises(ConfigError, match="needs a teacher"):
        make_trainer(estimator="distill")


def test_explained_variance():
    returns = np.array([1.0, 2.0, 3.0])
    assert explained_variance(returns, returns) == 1
    assert explained_variance(np.full(3, 7.0), returns) == 0
    assert explained_variance(returns, np.full(3, 7.0)) == 0
    assert explained_variance(np.zeros(0), np.zeros(0)) == 0


def test_an_idle_rank_has_an_empty_batch(make_trainer):
    trainer = make_trainer(estimator="step_gae")
    batch = trainer.credit_batch(())
    assert isinstance(batch, CreditBatch)
    assert len(batch.step_values) == len(batch.next_values) == len(batch.token_values) == 0


@pytest.mark.parametrize("settings", [{"gradient_checkpointing": True}, {"gradient_accumulation_steps": 4}])
@BOTH
def test_how_a_step_is_computed_does_not_matter(make_trainer, kind, settings):
    settings = dict(settings)
    if "gradient_accumulation_steps" in settings:
        settings["per_device_train_batch_size"] = 2
    told = {"estimator": "token_gae", "critic": {"kind": kind}}
    plain, _, gradient = train_one(make_trainer, **told)
    other, _, same = train_one(make_trainer, settings, rows_per_forward=1, **told)
    assert apart(same, gradient) < 1e-4
    for figure in ("critic/loss", "critic/grad_norm", "critic/explained_variance"):
        assert other.last_update[figure] == pytest.approx(plain.last_update[figure], rel=1e-3, abs=1e-6)


def test_a_head_on_a_policy_with_an_adapter(make_trainer):
    """The backbone's adapter learns from the value loss; a separate critic must name its own model."""
    from peft import LoraConfig

    adapter = LoraConfig(task_type="CAUSAL_LM", r=4, target_modules=["q_proj"])
    trainer, _, gradient = train_one(make_trainer, estimator="step_gae", critic={"kind": "shared"}, peft_config=adapter)
    assert np.isfinite(trainer.last_update["critic/loss"])
    assert gradient.norm() > 0
    with pytest.raises(ConfigError, match=r"critic\.model"):
        make_trainer(estimator="step_gae", critic={"kind": "separate"}, peft_config=adapter)


def test_a_separate_critic_from_a_model_of_its_own(make_trainer, tiny, tmp_path):
    tiny.model(seed=4, hidden=16).save_pretrained(tmp_path / "small")
    trainer, _, _ = train_one(make_trainer, estimator="step_gae", critic={"model": str(tmp_path / "small")})
    assert trainer.last_update["critic/grad_norm"] > 0
