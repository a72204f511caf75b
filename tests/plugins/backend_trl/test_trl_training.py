"""What TRL can do still works: several passes over a batch, checkpoints, evaluation, adapters, reward functions."""

import math
from pathlib import Path

import pandas as pd
import pytest
import torch
from peft import LoraConfig

from agentr1_core.errors import EnvError, RewardError

REPORTED = (
    *("loss", "reward", "success", "steps_per_episode", "tokens", "kl", "entropy", "clip_ratio", "grad_norm"),
    *("logprob_gap", "logprob_gap_max", "share_merged", "episodes/failed"),
    *("ledger/sampled", "ledger/trained", "ledger/masked", "ledger/dropped"),
)
LORA = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")


class Updates:
    def __init__(self):
        self.seen = []

    def agentr1_update(self, *, metrics, step):
        self.seen.append((step, dict(metrics)))

    def agentr1_group(self, **_):
        pass

    agentr1_step = agentr1_trajectory = agentr1_group


def weights_of(trainer):
    return torch.cat([p.detach().reshape(-1) for p in trainer.model.parameters()])


def test_every_update_reports_and_the_ledger_balances(make_trainer):
    updates = Updates()
    trainer = make_trainer({"max_steps": 3}, hooks=updates)
    trainer.train()
    assert [step for step, _ in updates.seen] == [1, 2, 3]
    for _, figures in updates.seen:
        for name in REPORTED:
            assert math.isfinite(figures[name]), name
        parts = figures["ledger/trained"] + figures["ledger/masked"] + figures["ledger/dropped"]
        assert parts == figures["ledger/sampled"] > 0
        assert figures["logprob_gap_max"] < 1e-4
        assert figures["entropy"] == pytest.approx(math.log(264), abs=0.1)  # near uniform: a fresh model
    assert trainer.ledger.balances
    assert trainer.ledger.sampled == sum(figures["ledger/sampled"] for _, figures in updates.seen)


def test_several_passes_over_a_batch_clip_against_the_first(make_trainer):
    updates = Updates()
    trainer = make_trainer({"num_iterations": 3, "max_steps": 3, "learning_rate": 1e-2}, hooks=updates)
    trainer.train()
    first, _, third = (figures for _, figures in updates.seen)
    assert first["ledger/sampled"] == third["ledger/sampled"]  # the same batch
    assert first["drift"] == pytest.approx(0.0, abs=1e-6)
    assert third["drift"] > 1e-3  # the policy has moved away from the one that sampled
    assert third["clip_ratio"] > 0
    assert third["logprob_gap_max"] < 1e-4  # still measured at the weights that sampled


def test_resuming_continues_the_same_run(make_trainer, tiny):
    config = {"save_strategy": "steps", "save_steps": 2, "max_steps": 4}
    whole = make_trainer(config)
    whole.train()
    folder = Path(whole.args.output_dir)
    again = make_trainer(config, model=tiny.model(seed=9))
    again.train(resume_from_checkpoint=str(folder / "checkpoint-2"))
    assert again.state.global_step == 4
    assert again.ledger == whole.ledger
    assert again.last_update["reward"] == whole.last_update["reward"]
    assert float((weights_of(again) - weights_of(whole)).abs().max()) < 1e-6


def test_evaluation_reports_reward_and_success_and_repeats(make_trainer, tiny):
    trainer = make_trainer({"per_device_eval_batch_size": 8}, dataset=tiny.dataset(4))
    first = trainer.evaluate(trainer.train_dataset)
    second = trainer.evaluate(trainer.train_dataset)
    assert 0 <= first["eval_success"] <= 1
    assert first["eval_reward"] > 0
    assert first["eval_reward"] == second["eval_reward"]
    before = weights_of(trainer)
    trainer.train()
    assert float((weights_of(trainer) - before).abs().max()) > 0


def test_evaluation_during_training(make_trainer, tiny):
    config = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}
    trainer = make_trainer(config, eval_dataset=tiny.dataset(2))
    trainer.train()
    logged = [entry for entry in trainer.state.log_history if "eval_success" in entry]
    assert len(logged) == 2


def test_adapters_with_a_kl_term(make_trainer):
    trainer = make_trainer({"beta": 0.1, "max_steps": 3, "learning_rate": 1e-2}, peft_config=LORA)
    base = trainer.model.get_base_model().model.embed_tokens.weight.clone()
    trainer.train()
    assert trainer.last_update["kl"] > 0
    assert torch.equal(trainer.model.get_base_model().model.embed_tokens.weight, base)
    assert trainer.last_update["logprob_gap_max"] < 1e-4  # the engine samples with the adapter


def test_equal_rewards_teach_nothing(make_trainer, tiny):
    trainer = make_trainer(
        {"max_steps": 1}, dataset=tiny.dataset(reward=False), reward_funcs=lambda prompts, **_: [1.0] * len(prompts)
    )
    before = weights_of(trainer)
    trainer.train()
    assert trainer.last_update["grad_norm"] == 0
    assert trainer.last_update["loss"] == 0
    assert torch.equal(weights_of(trainer), before)


def test_reward_functions_see_whole_trajectories(make_trainer, tiny):
    seen = {}

    def judge(prompts, completions, completion_ids, trajectories, n, **_):
        seen.update(prompts=prompts, completions=completions, ids=completion_ids, trajectories=trajectories, n=n)
        return [float(len(said)) for said in completions]

    def not_here(prompts, **_):
        return [None] * len(prompts)

    updates = Updates()
    trainer = make_trainer(
        {"max_steps": 1, "reward_weights": [0.5, 2.0]},
        dataset=tiny.dataset(reward=False),
        reward_funcs=[judge, not_here],
        hooks=updates,
    )
    trainer.train()
    trajectory, said = seen["trajectories"][-1], seen["completions"][-1]
    assert [message["role"] for message in said[:2]] == ["assistant", "user"][: len(said)]
    assert len(seen["ids"][-1]) == trajectory.n_sampled
    assert seen["n"][-1] == trajectory.task["n"]
    assert updates.seen[0][1]["rewards/judge"] == pytest.approx(0.5 * sum(map(len, seen["completions"])) / 8)
    assert "rewards/not_here" not in updates.seen[0][1]


def test_rows_without_any_reward_are_masked(make_trainer, tiny):
    trainer = make_trainer({"max_steps": 1}, dataset=tiny.dataset(reward=False))
    trainer.train()
    assert trainer.ledger.trained == 0
    assert trainer.ledger.masked == {"unscorable": trainer.ledger.sampled}


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_a_reward_that_is_no_number_is_named(make_trainer, wrong):
    def broken(prompts, **_):
        return [wrong] * len(prompts)

    with pytest.raises(RewardError, match="broken"):
        make_trainer(reward_funcs=broken).train()


def test_when_every_episode_fails_the_cause_is_told(make_trainer, tiny):
    class Broken(tiny.env):
        async def reset(self, task):
            raise OSError("no such server")

    with pytest.raises(EnvError, match="no such server"):
        make_trainer(env=Broken).train()


def test_failed_episodes_are_left_out_and_their_tokens_dropped(make_trainer, tiny):
    class Fragile(tiny.env):
        async def step(self, action):
            if action.text[:1] < "K":
                raise OSError("crashed")
            return await super().step(action)

    trainer = make_trainer({"max_steps": 1, "num_generations": 8}, env=Fragile)
    trainer.train()
    figures = trainer.last_update
    assert figures["episodes"] + figures["episodes/failed"] == 8
    assert figures["episodes/failed"] > 0
    assert trainer.ledger.dropped["env_error"] > 0
    assert trainer.ledger.balances


def test_shuffled_advantages_are_the_same_numbers_in_other_places(make_trainer):
    plain, control = make_trainer({"max_steps": 1}), make_trainer({"max_steps": 1}, shuffle_advantages=True)
    plain.train()
    control.train()
    assert control.last_update["reward"] == plain.last_update["reward"]
    assert control.last_update["grad_norm"] > 0
    assert float((weights_of(control) - weights_of(plain)).abs().max()) > 0


def test_completions_are_logged_as_trl_does(make_trainer):
    def judge(completions, log_extra, log_metric, **_):
        log_extra("messages", [len(said) for said in completions])
        log_metric("judged", 2.0)
        return [float(len(said)) for said in completions]

    trainer = make_trainer({"max_steps": 1, "log_completions": True}, reward_funcs=judge)
    trainer.train()
    (table,) = (Path(trainer.args.output_dir) / "completions").glob("*.parquet")
    logged = pd.read_parquet(table)
    assert len(logged) == 8
    assert logged["judge"].tolist() == logged["messages"].tolist()
    assert logged["judge"].tolist() == [len(said) for said in logged["completion"]]
    assert trainer.state.log_history[0]["judged"] == 2.0
