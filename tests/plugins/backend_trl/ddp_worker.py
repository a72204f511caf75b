"""Run by torchrun in one or two processes: one optimiser step in each scenario; rank 0 saves gradients and figures."""

import sys
import tempfile
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import conftest as tiny
from transformers import TrainerCallback

from agentr1_backend_trl.tree_chunk import TreeSettings
from agentr1_core.episode import RolloutLimits

#: A rank with fewer rows has fewer trees, and must still run as many forwards as the others.
SMALL = TreeSettings(max_tokens=130)


class Unlucky(tiny.Walk):
    """Every episode of some tasks fails, so that a rank may be left with nothing."""

    async def reset(self, task):
        if task["n"] in (self.unlucky or ()):
            raise OSError("the task's server is down")
        return await super().reset(task)

    def __init__(self, unlucky=(), **kwargs):
        super().__init__(**kwargs)
        self.unlucky = unlucky


class Gradients(TrainerCallback):
    def __init__(self):
        self.found = []

    def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
        self.found.append(torch.cat([p.grad.reshape(-1).clone() for p in model.parameters() if p.grad is not None]))


def longest(completions, **_):
    return [float(sum(len(message["content"]) for message in said)) / 50 for said in completions]


def run(name, n_processes, config=None, dataset=None, **arguments):
    gradients = Gradients()
    settings = {
        "per_device_train_batch_size": 8 // n_processes,
        "per_device_eval_batch_size": 8 // n_processes,
        "max_steps": 1,
        "max_grad_norm": 0.0,
        "seed": 5,
        "shuffle_dataset": False,  # prompt 0 takes one turn, prompt 1 two: ranks have different numbers of rows
        **(config or {}),
    }
    if "gradient_accumulation_steps" in settings:
        settings["per_device_train_batch_size"] //= settings["gradient_accumulation_steps"]
    trainer = tiny.StepGRPOTrainer(
        tiny.build_model(),
        args=tiny.config_for(tempfile.mkdtemp(), **settings),
        train_dataset=tiny.rows() if dataset is None else dataset,
        eval_dataset=tiny.rows(),
        processing_class=tiny.build_tokenizer(),
        env=Unlucky,
        limits=RolloutLimits(max_steps=4),
        callbacks=[gradients],
        **{"rows_per_forward": 3, **arguments},
    )
    trainer.train()
    figures = dict(trainer.last_update)
    if name == "reward functions":
        figures["eval_reward"] = trainer.evaluate()["eval_reward"]
    if trainer.critic is not None:  # after its own step, whose gradients were averaged over the ranks
        gradients.found.append(torch.cat([p.detach().reshape(-1) for p in trainer.critic.parameters]))
    return {"gradients": gradients.found, "figures": figures, "ledger": trainer.ledger}


def scenarios(n):
    """Every scenario in ``n`` processes."""
    unlucky = [{"n": i, "env_kwargs": {"turns": 3 if i % 2 else 1, "unlucky": [0, 2, 4, 6]}} for i in range(8)]
    return {
        "token mean": run("token mean", n, {"loss_type": "dapo"}),
        "trajectory mean": run("trajectory mean", n, {"loss_type": "grpo"}),
        "group over ranks": run("group over ranks", n, {"num_generations": 8}),
        "two windows": run("two windows", n, {"steps_per_generation": 2, "max_steps": 2}),
        "accumulation": run("accumulation", n, {"gradient_accumulation_steps": 4}),
        "reward functions": run("reward functions", n, reward_funcs=longest),
        "token tree": run("token tree", n, {"loss_type": "dapo"}, merge="tree", rows_per_forward=None),
        "trees cut": run("trees cut", n, {"loss_type": "dapo"}, merge="tree", rows_per_forward=None, tree=SMALL),
        "idle rank": run("idle rank", n, None, tiny.Dataset.from_list(unlucky)),
        "separate critic": run("separate critic", n, estimator="step_gae", critic={"learning_rate": 1e-2}),
        "shared critic": run(
            "shared critic", n, {"gradient_accumulation_steps": 2}, estimator="token_gae", critic={"kind": "shared"}
        ),
        "critic, idle rank": run(
            "critic, idle rank", n, {"max_steps": 2}, tiny.Dataset.from_list(unlucky), estimator="step_gae", loss="gspo"
        ),
    }


def main():
    found = scenarios(int(sys.argv[2]))
    if torch.distributed.get_rank() == 0:
        torch.save(found, sys.argv[1])


if __name__ == "__main__":
    main()
