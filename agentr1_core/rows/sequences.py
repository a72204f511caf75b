"""Whole token sequences for scoring by another model: a critic or a teacher reads each token once where it can.

Backends call ``lay_out_sequences`` before credit is estimated. Steps that continue each other share a sequence, so
that the scores are those of the merged rows; nothing is masked or left out here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from agentr1_core.credit import ordered_steps
from agentr1_core.mdp import Group, Step, TokenArray


@dataclass(frozen=True, slots=True, eq=False)
class ScoringSequence:
    """One sequence, and where the actions of its steps lie in it. Steps are numbered as in ``CreditBatch``."""

    #: ``(L,)`` int32.
    ids: TokenArray
    #: Number of each step, and the slice of its action.
    actions: tuple[tuple[int, int, int], ...]
    #: Number of the step whose next observation ends at the last token, if it is one to be valued.
    next_of: int | None = None

    def __len__(self) -> int:
        """L."""
        return len(self.ids)


def lay_out_sequences(
    groups: Sequence[Group], *, ends: Literal["none", "truncated"] = "none", max_length: int | None = None
) -> list[ScoringSequence]:
    """Every step of the usable trajectories, once.

    Args:
        groups: What was collected.
        ends: ``"truncated"`` also lays out the next observation of the steps at which a limit cut the episode.
        max_length: A next observation that is longer is left out.
    """
    found: list[ScoringSequence] = []
    number = 0
    for group in groups:
        for trajectory in group.trajectories:
            steps = ordered_steps(trajectory)
            ids: TokenArray = np.zeros(0, dtype=np.int32)
            actions: list[tuple[int, int, int]] = []
            for step in steps:
                prompt = step.prompt_ids
                if actions and not _extends(prompt, ids):
                    found.append(ScoringSequence(ids, tuple(actions)))
                    actions = []
                ids = np.concatenate([prompt, step.action.token_ids]).astype(np.int32)
                actions.append((number, len(prompt), len(ids)))
                number += 1
            after = _next_prompt(steps[-1], max_length) if ends == "truncated" else None
            cut = steps[-1].truncated or trajectory.stop_reason.is_truncation
            if after is None or steps[-1].terminated or not cut:
                found.append(ScoringSequence(ids, tuple(actions)))
            elif _extends(after, ids):
                found.append(ScoringSequence(after, tuple(actions), next_of=number - 1))
            else:
                found.append(ScoringSequence(ids, tuple(actions)))
                found.append(ScoringSequence(after, (), next_of=number - 1))
    return found


def _next_prompt(step: Step, max_length: int | None) -> TokenArray | None:
    after = step.next_observation
    if after is None or after.prompt_ids is None or not len(after.prompt_ids):
        return None
    return after.prompt_ids if max_length is None or len(after.prompt_ids) <= max_length else None


def _extends(longer: TokenArray, shorter: TokenArray) -> bool:
    return len(longer) >= len(shorter) and np.array_equal(longer[: len(shorter)], shorter)
