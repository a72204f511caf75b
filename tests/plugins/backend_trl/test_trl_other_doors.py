"""The other ways in: TRL's own trainer with ``rollout_func``, RLOO, and tools alone."""

import pytest
from datasets import Dataset
from trl import GRPOTrainer, RLOOConfig

from agentr1_backend_trl.rloo import StepRLOOTrainer
from agentr1_backend_trl.rollout_func import env_reward, step_rollout_func
from agentr1_core.errors import ConfigError, EnvError

PROMPTS = Dataset.from_list([{"prompt": [{"role": "user", "content": f"go {i}"}]} for i in range(8)])


def trl_trainer(tiny, folder, rollout_func):
    return GRPOTrainer(
        tiny.model(),
        reward_funcs=env_reward,
        args=tiny.config(folder),
        train_dataset=PROMPTS,
        processing_class=tiny.tokenizer(),
        rollout_func=rollout_func,
    )


def test_trl_trains_on_episodes_that_only_append(tiny, tmp_path):
    rollout = step_rollout_func(env=lambda task: tiny.env(turns=2, append=True))
    rows = []

    def watched(prompts, trainer):
        rows.append(rollout(prompts, trainer))
        return dict(rows[-1])

    trainer = trl_trainer(tiny, tmp_path, watched)
    trainer.train()
    assert trainer.state.log_history[0]["grad_norm"] > 0
    first = {name: values[0] for name, values in rows[0].items()}
    assert len(first["completion_ids"]) == len(first["env_mask"]) == len(first["logprobs"])
    assert 0 in first["env_mask"]  # the environment's turn between the two actions
    assert trainer.state.log_history[0]["rewards/env_reward/mean"] == pytest.approx(sum(rows[0]["env_reward"]) / 8)


def test_a_rewritten_context_does_not_fit_one_row(tiny, tmp_path):
    rollout = step_rollout_func(env=lambda task: tiny.env(turns=2, append=False))
    with pytest.raises(EnvError, match="StepGRPOTrainer"):
        trl_trainer(tiny, tmp_path, rollout).train()


def test_rloo_takes_its_own_configuration(tiny, tmp_path):
    args = RLOOConfig(
        str(tmp_path),
        per_device_train_batch_size=8,
        num_generations=4,
        max_completion_length=6,
        max_steps=1,
        beta=0.0,
        report_to="none",
        bf16=False,
        use_cpu=True,
        gradient_checkpointing=False,
        save_strategy="no",
    )
    trainer = StepRLOOTrainer(
        tiny.model(), args=args, train_dataset=tiny.dataset(), processing_class=tiny.tokenizer(), env=tiny.env
    )
    assert trainer.estimator.name == "rloo"
    assert trainer.loss_plan.mode == "traj-mean-token-sum"
    trainer.train()
    assert trainer.last_update["grad_norm"] > 0
    args.normalize_advantages = True
    with pytest.raises(ConfigError, match="normalize_advantages"):
        StepRLOOTrainer(tiny.model(), args=args, train_dataset=tiny.dataset(), env=tiny.env)


def test_tools_alone_make_an_environment(make_trainer):
    def add(a: int, b: int) -> int:
        """Add two numbers.

        Args:
            a: The first one.
            b: The second one.
        """
        return a + b

    def short(completions, **_):
        return [1.0 / (1 + len(said[-1]["content"])) for said in completions]

    trainer = make_trainer({"max_steps": 1}, tools=[add], dataset=PROMPTS, reward_funcs=short)
    trainer.train()
    assert trainer.last_update["steps_per_episode"] == 1  # a fresh model calls nothing
    assert trainer.ledger.balances
