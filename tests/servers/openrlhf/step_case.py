"""A round of training rows with everything that makes rounds differ, and its loss and update written out by hand.

The worker that runs OpenRLHF and the test that checks it both make the case from its seed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from agentr1_core.credit import Credit
from agentr1_core.mdp import Action, Group, Observation, Step, StopReason, Trajectory, float_array, token_array
from agentr1_core.rows import TrainingRow, make_rows

VOCABULARY = 64
CLIP, LEARNING_RATE, MAX_NORM = 0.2, 1e-3, 0.05


@dataclass(frozen=True)
class DeepSpeedCase:
    """How one round is run: ZeRO stage, rows of a micro-batch, optimiser steps, optimiser states in main memory.

    A round is padded to a multiple of ``forward``; where that is ``None``, of ``micro``.
    """

    name: str
    stage: int
    micro: int
    steps: int = 1
    offload: bool = False
    forward: int | None = None


def tiny_model(seed: int = 0) -> LlamaForCausalLM:
    """Two layers in float32, the same for everybody who asks with one seed."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        attn_implementation="eager",
        tie_word_embeddings=False,
    )
    return LlamaForCausalLM(config).float()


def rows_of_round(seed: int = 0, n_trajectories: int = 5) -> tuple[TrainingRow, ...]:
    """Rows of trajectories with one to four steps, some of which continue the step before and some of which do not."""
    draw = np.random.default_rng(seed)

    def tokens(n: int) -> np.ndarray:
        return token_array(draw.integers(3, VOCABULARY, n))

    trajectories = []
    for number in range(n_trajectories):
        steps, seen = [], tokens(int(draw.integers(2, 9)))
        for index in range(int(draw.integers(1, 5))):
            ids = tokens(int(draw.integers(1, 7)))
            action = Action(ids, float_array(-draw.uniform(0.5, 6.0, len(ids))), sampling={"temperature": 1.0})
            steps.append(Step(index, Observation((), prompt_ids=seen), action, reward=float(draw.normal())))
            rewritten = draw.random() < 0.5
            seen = tokens(5) if rewritten else np.concatenate([seen, ids, tokens(2)])
        trajectories.append(Trajectory(f"0/{number}", "0", {}, tuple(steps), StopReason.COMPLETED))
    group = Group("0", {}, tuple(trajectories))
    n = sum(t.n_sampled for t in trajectories)
    return make_rows([group], Credit(draw.normal(size=n)), merge="linear").rows


def old_logprobs(row: TrainingRow, seed: int) -> np.ndarray:
    """What the policy said before the round, ``(C,)``: off the present one, so that some ratios are clipped."""
    draw = np.random.default_rng([seed, len(row), *row.step_indices])
    return (-np.log(VOCABULARY) + draw.normal(scale=0.4, size=len(row.completion_ids))).astype(np.float32)


@dataclass(frozen=True)
class Reference:
    """One optimiser step in plain torch."""

    loss: float
    grad_norm: float
    #: Before clipping.
    gradient: dict[str, torch.Tensor]
    weights: dict[str, torch.Tensor]


def reference_step(rows: tuple[TrainingRow, ...], seed: int = 0) -> Reference:
    """Clipped PPO over the mean of all trained tokens, one row at a time without padding, then clipped AdamW."""
    model = tiny_model(seed)
    n_tokens = sum(row.n_trained for row in rows)
    loss = torch.zeros(())
    for row in rows:
        ids = torch.tensor(np.concatenate([row.prompt_ids, row.completion_ids]).astype(np.int64))[None]
        logits = model(ids).logits[0, :-1].float()
        said = torch.log_softmax(logits, -1).gather(1, ids[0, 1:, None])[:, 0][len(row.prompt_ids) - 1 :]
        ratio = (said - torch.tensor(old_logprobs(row, seed))).exp()
        advantages, mask = torch.tensor(row.advantages), torch.tensor(row.mask)
        per_token = -torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
        loss = loss + (per_token * mask).sum() / n_tokens
    optimiser = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0)
    loss.backward()
    gradient = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimiser.step()
    weights = {name: p.detach().clone() for name, p in model.named_parameters()}
    return Reference(float(loss.detach()), float(norm), gradient, weights)
