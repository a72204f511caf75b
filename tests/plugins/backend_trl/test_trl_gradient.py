"""Loss and gradient of one optimiser step against a reference written by hand on the raw steps."""

import numpy as np
import pytest
import torch
from transformers import TrainerCallback


class Recorder:
    """Keeps the groups and the updates that the trainer tells its hooks."""

    def __init__(self):
        self.groups, self.updates = [], []

    def agentr1_group(self, *, group):
        self.groups.append(group)

    def agentr1_update(self, *, metrics, step):
        self.updates.append(dict(metrics))

    def agentr1_step(self, **_):
        pass

    def agentr1_trajectory(self, **_):
        pass


class Gradients(TrainerCallback):
    """Keeps the gradient of each optimiser step, flat, before the optimiser uses it."""

    def __init__(self):
        self.found = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        parts = [p.grad.reshape(-1).clone() for p in model.parameters() if p.requires_grad and p.grad is not None]
        self.found.append(torch.cat(parts))


def train_one(make_trainer, config=None, **arguments):
    recorder, gradients = Recorder(), Gradients()
    settings = {"max_steps": 1, "max_grad_norm": 0.0, "loss_type": "dapo", **(config or {})}
    trainer = make_trainer(settings, hooks=recorder, callbacks=[gradients], **arguments)
    trainer.train()
    return trainer, recorder, gradients.found[0]


def log_probs(model, step, temperature=1.0):
    ids = torch.tensor(np.concatenate([step.prompt_ids, step.action.token_ids]), dtype=torch.long)
    logits = model(input_ids=ids[None]).logits[0, :-1] / temperature
    scored = torch.log_softmax(logits, -1).gather(1, ids[1:, None])[:, 0]
    return scored[len(step.prompt_ids) - 1 :]


def reference(model, groups, aggregation, constant=None, per_token=None):
    """``sum_j w_j * l_j`` over every sampled token, with GRPO advantages of whole trajectories; and its gradient."""
    trajectories = [t for group in groups for t in group.trajectories]
    n_tokens = sum(t.n_sampled for t in trajectories)
    loss = torch.zeros(())
    for group in groups:
        returns = torch.tensor([t.ret for t in group.trajectories])
        for trajectory, ret in zip(group.trajectories, returns, strict=True):
            spread = returns.std()
            advantage = (ret - returns.mean()) / (spread + 1e-6) if spread > 0 else torch.zeros(())
            weight = {
                "token-mean": 1 / n_tokens,
                "traj-mean-token-mean": 1 / (len(trajectories) * trajectory.n_sampled),
                "traj-mean-token-sum": 1 / len(trajectories),
                "dr-grpo": 1 / (len(trajectories) * (constant or 1)),
            }[aggregation]
            for step in trajectory.steps:
                scored = log_probs(model, step)
                loss = loss + weight * (per_token or ppo)(scored, advantage).sum()
    loss.backward()
    return loss.item(), torch.cat([p.grad.reshape(-1) for p in model.parameters()])


def ppo(scored, advantage):
    """On policy the ratio is 1 and nothing is clipped."""
    return -advantage * torch.exp(scored - scored.detach())


def cispo(scored, advantage):
    return -advantage * scored


def sapo(scored, advantage):
    temperature = 1.0 if advantage > 0 else 1.05
    soft = torch.sigmoid(temperature * (torch.exp(scored - scored.detach()) - 1)) * 4 / temperature
    return -soft * advantage


def apart(found, wanted):
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize(
    ("loss_type", "aggregation", "per_token"),
    [
        ("dapo", "token-mean", ppo),
        ("grpo", "traj-mean-token-mean", ppo),
        ("dr_grpo", "dr-grpo", ppo),
        ("luspo", "traj-mean-token-sum", ppo),
        ("cispo", "token-mean", cispo),
        ("sapo", "traj-mean-token-mean", sapo),
    ],
)
def test_loss_types_equal_their_formula(make_trainer, tiny, loss_type, aggregation, per_token):
    trainer, recorder, gradient = train_one(
        # TRL's cispo bounds the ratio by epsilon_high itself, not by 1 + epsilon_high.
        make_trainer,
        {"loss_type": loss_type, "epsilon_high": 5.0},
        rows_per_forward=3,
    )
    constant = trainer.args.max_completion_length
    loss, wanted = reference(tiny.model(), recorder.groups, aggregation, constant, per_token)
    assert trainer.last_update["loss"] == pytest.approx(loss, abs=1e-5)
    assert apart(gradient, wanted) < 1e-5


def test_merged_and_separate_rows_have_the_same_gradient(make_trainer, tiny):
    dataset = tiny.dataset(append=True)
    merged, _, one = train_one(make_trainer, dataset=dataset, merge="linear")
    separate, recorder, other = train_one(make_trainer, dataset=dataset, merge="none")
    assert merged.last_update["share_merged"] > 0.3
    assert separate.last_update["share_merged"] == 0
    assert apart(one, other) < 1e-5
    assert apart(one, reference(tiny.model(), recorder.groups, "token-mean")[1]) < 1e-5


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "sapo"])
def test_accumulation_leaves_the_gradient_alone(make_trainer, loss_type):
    whole = train_one(make_trainer, {"loss_type": loss_type})[2]
    in_four = {"loss_type": loss_type, "per_device_train_batch_size": 2, "gradient_accumulation_steps": 4}
    assert apart(train_one(make_trainer, in_four)[2], whole) < 1e-5


def test_rows_per_forward_only_bounds_memory(make_trainer):
    whole = train_one(make_trainer, rows_per_forward=100)[2]
    one_by_one = train_one(make_trainer, rows_per_forward=1)[2]
    assert apart(one_by_one, whole) < 1e-5


def test_recomputed_activations_leave_the_gradient_alone(make_trainer):
    plain = train_one(make_trainer)[2]
    assert apart(train_one(make_trainer, {"gradient_checkpointing": True})[2], plain) < 1e-5


def test_two_batches_in_one_step_count_half_each(make_trainer, tiny):
    """steps_per_generation below gradient_accumulation_steps: TRL plays several batches for one optimiser step."""
    shared = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 2, "steps_per_generation": 1}
    _, recorder, gradient = train_one(make_trainer, shared)
    halves = [reference(tiny.model(), [group], "token-mean")[1] for group in recorder.groups]
    assert len(halves) == 2
    assert apart(gradient, sum(halves) / 2) < 1e-5


def test_entropy_bonus_is_a_mean_over_the_step(make_trainer, tiny):
    coefficient = 0.3
    config = {"entropy_coef": coefficient}
    _, recorder, gradient = train_one(make_trainer, config, rows_per_forward=3)
    model = tiny.model()
    n_tokens = sum(t.n_sampled for group in recorder.groups for t in group.trajectories)
    for step in (s for group in recorder.groups for t in group.trajectories for s in t.steps):
        ids = torch.tensor(np.concatenate([step.prompt_ids, step.action.token_ids]), dtype=torch.long)
        log_p = torch.log_softmax(model(input_ids=ids[None]).logits[0, len(step.prompt_ids) - 1 : -1], -1)
        (coefficient * (log_p.exp() * log_p).sum() / n_tokens).backward()
    bonus = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    wanted = reference(tiny.model(), recorder.groups, "token-mean")[1] + bonus
    assert apart(gradient, wanted) < 1e-5


@pytest.mark.parametrize("loss_type", ["dapo", "grpo"])
def test_kl_term_has_the_same_weights(make_trainer, tiny, tmp_path, loss_type):
    """The reference model is loaded from the model's folder; the policy starts elsewhere, so that KL is not zero."""
    tiny.model(seed=0).save_pretrained(tmp_path / "ref")
    policy = tiny.model(seed=1)
    policy.config._name_or_path = str(tmp_path / "ref")
    config = {"beta": 0.5, "loss_type": loss_type, "use_bias_correction_kl": False}
    trainer, recorder, gradient = train_one(make_trainer, config, model=policy, rows_per_forward=2)
    reference_model = tiny.model(seed=0)
    logps = {}
    with torch.no_grad():
        for step in (s for group in recorder.groups for t in group.trajectories for s in t.steps):
            logps[id(step)] = log_probs(reference_model, step)

    model = tiny.model(seed=1)
    mode = {"dapo": "token-mean", "grpo": "traj-mean-token-mean"}[loss_type]
    trajectories = [t for group in recorder.groups for t in group.trajectories]
    n_tokens = sum(t.n_sampled for t in trajectories)
    total_kl = 0.0
    for trajectory in trajectories:
        weight = 1 / n_tokens if mode == "token-mean" else 1 / (len(trajectories) * trajectory.n_sampled)
        for step in trajectory.steps:
            gap = logps[id(step)] - log_probs(model, step)
            kl = torch.exp(gap) - gap - 1
            (0.5 * weight * kl).sum().backward()
            total_kl += kl.sum().item()
    kl_part = torch.cat([p.grad.reshape(-1) for p in model.parameters()])
    wanted = reference(tiny.model(seed=1), recorder.groups, mode)[1] + kl_part
    assert apart(gradient, wanted) < 1e-5
    assert trainer.last_update["kl"] == pytest.approx(total_kl / n_tokens, rel=1e-4)


def test_temperature_is_part_of_the_policy(make_trainer, tiny):
    """Engine and trainer score tokens under the same, tempered distribution."""
    trainer, recorder, _ = train_one(make_trainer, {"temperature": 0.7})
    step = recorder.groups[0].trajectories[0].steps[0]
    with torch.no_grad():
        assert log_probs(tiny.model(), step, 0.7).numpy() == pytest.approx(step.action.logprobs, abs=1e-5)
    assert trainer.last_update["logprob_gap_max"] < 1e-5
