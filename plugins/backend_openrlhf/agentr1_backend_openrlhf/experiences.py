"""Training rows as OpenRLHF's experiences, and back.

``to_experience`` makes an experience of one row before any model has read it; ``fill_in`` writes advantages and value
targets into a batch of them afterwards. In OpenRLHF entry ``i`` of a mask, a log-prob or an advantage belongs to token
``i + 1`` of the sequence, so that each has one entry fewer than the sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from agentr1_backend_openrlhf.private_names import find
from agentr1_core.mdp import TokenArray
from agentr1_core.rows import CONTEXT, TrainingRow


@dataclass(frozen=True, slots=True, eq=False)
class ReadOnlyRow:
    """A sequence that no token of trains: padding, or a prompt that only the critic values, at its last token."""

    prompt_ids: TokenArray
    #: Number of the step whose observation it is; ``None`` for padding.
    step: int | None = None
    #: Whether it is what the step would have been followed by, and not what it saw.
    is_next: bool = False

    def __len__(self) -> int:
        """Its tokens, and one more whose prediction is looked at."""
        return len(self.prompt_ids) + 1


Row = TrainingRow | ReadOnlyRow


def row_ids(row: Row) -> TokenArray:
    """The tokens of the row, ``(T,)``; a read-only row repeats its last one."""
    end = row.completion_ids if isinstance(row, TrainingRow) else row.prompt_ids[-1:]
    return np.concatenate([row.prompt_ids, end])


def completion_slice(row: TrainingRow) -> slice:
    """Where in the row's ``T - 1`` entries those of its completion lie."""
    start = len(row.prompt_ids) - 1
    return slice(start, start + len(row.completion_ids))


def sampled_mask(row: Row) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Which entries are looked at when models read the row, ``(T - 1,)``: all sampled tokens, masked ones too."""
    mask = np.zeros(len(row) - 1, dtype=np.bool_)
    if isinstance(row, TrainingRow):
        mask[completion_slice(row)] = row.span_ids != CONTEXT
    else:
        mask[-1] = True
    return mask


def to_experience(row: Row, *, with_logprobs: bool, reward: float = 0.0) -> Any:
    """An experience of one row, ``(1, T)`` and ``(1, T - 1)``.

    Args:
        row: The row.
        with_logprobs: Whether OpenRLHF corrects for the engine and wants the log-probs of the behaviour policy.
        reward: Shown in OpenRLHF's logs only; advantages are filled in later.
    """
    ids = torch.from_numpy(row_ids(row).astype(np.int64))[None]
    logprobs = np.zeros(len(row) - 1, dtype=np.float32)
    if isinstance(row, TrainingRow):
        logprobs[completion_slice(row)] = row.logprobs
    mask = torch.from_numpy(sampled_mask(row).astype(np.int64))[None]
    rewards = torch.tensor([reward], dtype=torch.float32)
    return find("Experience")(
        sequences=ids,
        attention_mask=torch.ones_like(ids),
        action_mask=mask,
        rollout_log_probs=torch.from_numpy(logprobs)[None] if with_logprobs else None,
        prompts=[""],
        labels=[""],
        images=[None],
        mm_train_inputs=[None],
        rewards=rewards,
        scores=rewards.clone(),
        response_length=mask.sum(1),
        truncated=torch.tensor([False]),
        total_length=torch.tensor([float(len(row))]),
        info={"reward": rewards.clone()},
    )


@dataclass(frozen=True, slots=True, eq=False)
class Target:
    """What a training row learns, ``(C,)`` each: entries where ``mask`` is False are ignored."""

    mask: np.ndarray[Any, np.dtype[np.bool_]]
    advantages: np.ndarray[Any, Any]
    #: Value targets, with a critic.
    returns: np.ndarray[Any, Any] | None = None
    #: Where the critic learns; ``mask`` where it is ``None``.
    value_mask: np.ndarray[Any, np.dtype[np.bool_]] | None = None


#: Entry of ``Experience.info`` that carries the critic's mask to its actor, which takes it out again.
VALUE_MASK = "agentr1_value_mask"


def fill_in(experience: Any, rows: Sequence[Row], targets: Sequence[Target | None]) -> None:
    """Write masks, advantages and value targets into a batch of experiences.

    Args:
        experience: A batch, ``(B, T)``.
        rows: Its rows, in order.
        targets: What each learns; ``None`` for one that only was read.
    """
    shape = tuple(experience.action_mask.shape)
    mask, value_mask = torch.zeros(shape, dtype=torch.long), torch.zeros(shape, dtype=torch.long)
    advantages, returns = torch.zeros(shape), torch.zeros(shape)
    for place, (row, target) in enumerate(zip(rows, targets, strict=True)):
        if target is None or not isinstance(row, TrainingRow):
            continue
        where = completion_slice(row)
        mask[place, where] = torch.from_numpy(target.mask.astype(np.int64))
        advantages[place, where] = torch.from_numpy(np.where(target.mask, target.advantages, 0).astype(np.float32))
        learns = target.mask if target.value_mask is None else target.value_mask
        value_mask[place, where] = torch.from_numpy(learns.astype(np.int64))
        if target.returns is not None:
            returns[place, where] = torch.from_numpy(np.asarray(target.returns, dtype=np.float32))
    experience.action_mask = mask
    experience.advantages = advantages
    experience.returns = returns if experience.values is not None else advantages.clone()
    experience.kl = None
    if experience.values is not None:
        experience.info[VALUE_MASK] = value_mask


def per_token(experience: Any, field: str, place: int, row: TrainingRow) -> np.ndarray[Any, np.dtype[np.float64]]:
    """What a model said about the completion of one row of a batch, ``(C,)``."""
    values = getattr(experience, field)[place].float().numpy().astype(np.float64)
    found: np.ndarray[Any, np.dtype[np.float64]] = values[completion_slice(row)]
    return found
