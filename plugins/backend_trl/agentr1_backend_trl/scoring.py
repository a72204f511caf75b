"""Scores of collected episodes by another model, before credit is estimated: a critic's values, a teacher's log-probs.

``play_batch`` calls it. Sequences are padded on the right and run a few at a time without gradients; no collective
is reached, so ranks may hold different numbers of episodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from agentr1_core.credit import CreditBatch
from agentr1_core.mdp import Group
from agentr1_core.rows import ScoringSequence, lay_out_sequences

#: Scores each position of padded sequences: token ids and attention mask ``(B, L)`` to scores ``(B, L)``.
Scorer = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def add_values(
    batch: CreditBatch,
    groups: Sequence[Group],
    values: Scorer,
    *,
    max_length: int | None,
    rows_per_forward: int,
    device: torch.device,
) -> CreditBatch:
    """The batch with ``step_values``, ``token_values`` and ``next_values``.

    Args:
        batch: Of these groups.
        groups: This rank's.
        values: V after reading each token.
        max_length: Context of the model; a next observation beyond it has no value.
        rows_per_forward: Sequences of one forward.
        device: Where to run.
    """
    steps, after = np.zeros(batch.n_steps), np.full(batch.n_steps, np.nan)
    tokens = np.zeros(batch.total_tokens)
    starts = np.cumsum(np.concatenate([[0], batch.n_tokens]))
    sequences = lay_out_sequences(groups, ends="truncated", max_length=max_length)
    for sequence, scores in _scored(sequences, values, rows_per_forward, device):
        for number, start, stop in sequence.actions:
            # The state before a token is what was read up to the token before it.
            steps[number] = scores[start - 1]
            tokens[starts[number] : starts[number + 1]] = scores[start - 1 : stop - 1]
        if sequence.next_of is not None:
            after[sequence.next_of] = scores[-1]
    return replace(batch, step_values=steps, token_values=tokens, next_values=after)


def add_teacher(
    batch: CreditBatch, groups: Sequence[Group], logps: Scorer, *, rows_per_forward: int, device: torch.device
) -> CreditBatch:
    """The batch with ``sampled_logprobs`` and ``teacher_logprobs``.

    Args:
        batch: Of these groups.
        groups: This rank's.
        logps: Log-prob of each token given those before it; anything at the first position.
        rows_per_forward: Sequences of one forward.
        device: Where to run.
    """
    teacher = np.zeros(batch.total_tokens)
    starts = np.cumsum(np.concatenate([[0], batch.n_tokens]))
    for sequence, scores in _scored(lay_out_sequences(groups), logps, rows_per_forward, device):
        for number, start, stop in sequence.actions:
            teacher[starts[number] : starts[number + 1]] = scores[start:stop]
    steps = [step for g in groups for t in g.trajectories for step in sorted(t.steps, key=lambda one: one.index)]
    sampled = np.concatenate([np.zeros(0), *[step.action.logprobs for step in steps]]).astype(np.float64)
    return replace(batch, sampled_logprobs=sampled, teacher_logprobs=teacher)


def _scored(
    sequences: Sequence[ScoringSequence], scorer: Scorer, rows_per_forward: int, device: torch.device
) -> Iterator[tuple[ScoringSequence, np.ndarray[Any, Any]]]:
    """Each sequence with its scores, ``(L,)``; of similar length together, so that little is padded."""
    ordered = sorted(sequences, key=len, reverse=True)
    for first in range(0, len(ordered), rows_per_forward):
        part = ordered[first : first + rows_per_forward]
        longest = len(part[0])
        ids = np.zeros((len(part), longest), dtype=np.int64)
        attended = np.zeros((len(part), longest), dtype=np.int64)
        for row, sequence in enumerate(part):
            ids[row, : len(sequence)] = sequence.ids
            attended[row, : len(sequence)] = 1
        with torch.no_grad():
            scores = scorer(torch.from_numpy(ids).to(device), torch.from_numpy(attended).to(device)).float().cpu()
        for sequence, row_scores in zip(part, scores.numpy(), strict=True):
            yield sequence, row_scores[: len(sequence)].astype(np.float64)
