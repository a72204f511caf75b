"""On single-turn episodes, where a row is a trajectory, every loss type has the gradient of ``trl.GRPOTrainer`` itself.

TRL's own trainer is given the same sampled tokens through ``rollout_func``.
"""

import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOTrainer

from agentr1_core.flow import SingleStepFlow

PROMPTS = Dataset.from_list([{"prompt": [{"role": "user", "content": f"go {i}"}]} for i in range(8)])


def variety(completion_ids, **_):
    return [len(set(ids)) / 6 - ids[0] / 300 for ids in completion_ids]


class Gradient(TrainerCallback):
    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.found = torch.cat([p.grad.reshape(-1).clone() for p in model.parameters()])


class Groups:
    def __init__(self):
        self.found = []

    def agentr1_group(self, *, group):
        self.found.append(group)

    def agentr1_step(self, **_):
        pass

    agentr1_trajectory = agentr1_update = agentr1_step


@pytest.mark.parametrize(
    "config",
    [
        {"loss_type": "dapo"},
        {"loss_type": "bnpo"},
        {"loss_type": "grpo"},
        {"loss_type": "dr_grpo"},
        {"loss_type": "luspo"},
        {"loss_type": "cispo", "epsilon_high": 5.0},
        {"loss_type": "sapo"},
        {"loss_type": "vespo"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence"},
        {"loss_type": "grpo", "beta": 0.3},
        {"loss_type": "dapo", "beta": 0.3, "entropy_coef": 0.1},
        {"loss_type": "dapo", "temperature": 0.6, "delta": 3.0, "entropy_coef": 0.1},
    ],
    ids=str,
)
def test_gradient_and_figures_are_those_of_trl(make_trainer, tiny, tmp_path, config):
    tiny.model(seed=4).save_pretrained(tmp_path / "reference")

    def policy():
        model = tiny.model(seed=0)
        model.config._name_or_path = str(tmp_path / "reference")  # where TRL loads the reference model from
        return model

    settings = {"max_steps": 1, "max_grad_norm": 0.0, "scale_rewards": "none", "max_completion_length": 80, **config}
    groups, ours, theirs = Groups(), Gradient(), Gradient()
    step_level = make_trainer(
        settings,
        model=policy(),
        dataset=PROMPTS,
        flow=SingleStepFlow,
        merge="none",
        reward_funcs=variety,
        hooks=groups,
        callbacks=[ours],
    )
    step_level.train()
    lengths = {t.n_sampled for group in groups.found for t in group.trajectories}
    assert len(lengths) > 1  # otherwise all averages are the same

    def replay(prompts, trainer):
        steps = [t.steps[0] for group in groups.found for t in group.trajectories]
        return {
            "prompt_ids": [step.prompt_ids.tolist() for step in steps],
            "completion_ids": [step.action.token_ids.tolist() for step in steps],
            "logprobs": [step.action.logprobs.tolist() for step in steps],
        }

    plain = GRPOTrainer(
        policy(),
        reward_funcs=variety,
        args=tiny.config(tmp_path / "plain", **settings),
        train_dataset=PROMPTS,
        processing_class=tiny.tokenizer(),
        rollout_func=replay,
        callbacks=[theirs],
    )
    plain.train()
    assert theirs.found.norm() > 0
    assert float((ours.found - theirs.found).norm() / theirs.found.norm()) < 1e-5
    mine, trls = step_level.state.log_history[0], plain.state.log_history[0]
    for name in ("loss", "reward", "entropy", "kl", "rewards/variety/mean"):
        if name in trls:
            here = "rewards/variety" if name.startswith("rewards/") else name
            assert mine[here] == pytest.approx(trls[name], rel=1e-4, abs=1e-6), name
