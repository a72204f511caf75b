"""One rank of rounds of OpenRLHF's own policy trainer under DeepSpeed. ``test_deepspeed_step`` starts it.

Usage: RANK=... WORLD_SIZE=... deepspeed_worker.py CASES FOLDER, where CASES is a JSON list of ``DeepSpeedCase`` fields.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import torch
from openrlhf_arguments import parse
from step_case import (
    CLIP,
    LEARNING_RATE,
    MAX_NORM,
    DeepSpeedCase,
    old_logprobs,
    rows_of_round,
    tiny_model,
)

from agentr1_backend_openrlhf.experiences import (
    ReadOnlyRow,
    Target,
    completion_slice,
    fill_in,
    to_experience,
)
from agentr1_backend_openrlhf.row_plan import RowPlan
from agentr1_core.mdp import token_array
from agentr1_core.rows import TrainingRow


def keep_gradient(trainer: Any) -> dict[str, torch.Tensor]:
    """Filled with the gradient of each parameter, before clipping, when the optimiser is about to step."""
    from deepspeed.utils import safe_get_full_grad

    kept: dict[str, torch.Tensor] = {}
    step, engine = trainer.strategy.optimizer_step, trainer.actor.model

    def optimizer_step(*args: Any, **kwargs: Any) -> None:
        if engine.is_gradient_accumulation_boundary():
            for name, parameter in engine.module.named_parameters():
                kept[name] = safe_get_full_grad(parameter).float().clone()
        step(*args, **kwargs)

    trainer.strategy.optimizer_step = optimizer_step
    return kept


def run(case: DeepSpeedCase, folder: str) -> None:
    stage, micro = case.stage, case.micro
    from openrlhf.models import Actor
    from openrlhf.utils.deepspeed import DeepspeedStrategy

    flags = {
        "--ds.zero_stage": stage,
        "--train.micro_batch_size": micro,
        "--rollout.micro_batch_size": micro,
        "--actor.eps_clip": CLIP,
        "--actor.adam.lr": LEARNING_RATE,
        "--actor.lr_scheduler": "constant",
        "--actor.max_norm": MAX_NORM,
        "--actor.entropy_coef": 0,
        "--algo.advantage.estimator": "reinforce",
        "--algo.kl.init_coef": 0,
        "--reward.remote_url": "none",
        "--actor.num_gpus_per_node": 1,
        "--rollout.n_samples_per_prompt": 8,
    }
    args = parse(
        [str(part) for flag in flags.items() for part in flag] + (["--ds.adam_offload"] if case.offload else [])
    )
    args.ds.param_dtype = "fp32"  # what is compared is exact only in full precision
    strategy = DeepspeedStrategy(
        max_norm=MAX_NORM, micro_train_batch_size=micro, train_batch_size=micro * 8, zero_stage=stage, args=args
    )
    strategy.setup_distributed()
    actor = Actor(tiny_model())
    actor.packing_samples = False
    config = {
        "optim": "adam",
        "muon": vars(args.actor.muon),
        "adam": vars(args.actor.adam),
        "lr_scheduler": args.actor.lr_scheduler,
        "lr_warmup_ratio": 0.0,
        "min_lr_ratio": 0.1,
        "max_norm": args.actor.max_norm,
        "scheduler_steps": 100,
    }
    actor, optimiser, scheduler = strategy.prepare((actor, config))
    from agentr1_backend_openrlhf.model_actors import StepPolicyTrainer

    trainer = StepPolicyTrainer(
        strategy, actor, None, optimiser, scheduler, micro_train_batch_size=micro, dataloader_pin_memory=False
    )
    world, rank = strategy.world_size, torch.distributed.get_rank()
    rows = list(rows_of_round())
    plan = RowPlan.of(
        len(rows),
        optimizer_steps=case.steps,
        n_ranks=world,
        train_micro_batch=micro,
        forward_micro_batch=case.forward or micro,
    )
    rows += [ReadOnlyRow(token_array([1]))] * plan.n_padding
    order = plan.deal([len(row) for row in rows])
    part = len(order) // world
    for number in order[rank * part : (rank + 1) * part]:
        row = rows[number]
        experience = to_experience(row, with_logprobs=False)
        old = np.zeros(len(row) - 1, dtype=np.float32)
        target = None
        if isinstance(row, TrainingRow):
            old[completion_slice(row)] = old_logprobs(row, 0)
            target = Target(row.mask, row.advantages)
        experience.action_log_probs = torch.from_numpy(old)[None]
        experience.index = [number]
        fill_in(experience, [row], [target])
        trainer.replay_buffer.append(experience)
    trainer.optimizer_steps = plan.optimizer_steps
    gradient = keep_gradient(trainer)
    status = trainer.ppo_train(0.0)
    from deepspeed import zero

    parameters = dict(actor.model.module.named_parameters())
    with zero.GatheredParameters(list(parameters.values()), enabled=stage == 3):
        weights = {name: p.detach().float().clone() for name, p in parameters.items()}
    found = {"gradient": gradient, "status": status, "weights": weights, "steps": actor.model.global_steps}
    torch.save(found, f"{folder}/{case.name}-{rank}.pt")


if __name__ == "__main__":
    for told in json.loads(sys.argv[1]):
        run(DeepSpeedCase(**told), sys.argv[2])
    torch.distributed.destroy_process_group()
