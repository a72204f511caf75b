"""The records that training reads: a row of tokens, and a batch of rows with its token ledger.

``make_rows`` writes them and backends turn them into tensors. Nothing here pads, shuffles or weighs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentr1_core.mdp import FloatArray, TokenArray
from agentr1_core.rows.ledger import Ledger

#: ``span_ids`` and ``versions`` of a token that no trained step of the row sampled.
CONTEXT = -1


@dataclass(frozen=True, slots=True, eq=False)
class TrainingRow:
    """One sequence to train on: P prompt tokens, then C completion tokens of one step or of several merged ones.

    The completion holds each step's sampled tokens and, between two steps, whatever the second one's prompt adds.
    """

    #: Tokens the model saw before the first trained step, ``(P,)`` int32.
    prompt_ids: TokenArray
    #: ``(C,)`` int32.
    completion_ids: TokenArray
    #: True only for tokens the engine sampled and that train, ``(C,)``; at least one of them.
    mask: NDArray[np.bool_]
    #: Log-prob (nats) of each trained token when it was sampled, ``(C,)`` float32; 0 where the mask is False.
    logprobs: FloatArray
    #: ``(C,)`` float32; 0 where the mask is False.
    advantages: FloatArray
    #: Value targets, ``(C,)`` float32, if the estimator gave any; 0 where the mask is False.
    returns: FloatArray | None
    #: Index of the step that sampled each token, ``(C,)`` int32; -1 for tokens that are context only.
    span_ids: NDArray[np.int32]
    #: Version of the weights that sampled each token, ``(C,)`` int32; -1 for context and where unknown.
    versions: NDArray[np.int32]
    trajectory_id: str
    group_id: str
    #: The steps with tokens to train in this row, in order.
    step_indices: tuple[int, ...]
    #: How the tokens were sampled (temperature, top_p, ...), as the first step recorded it; alike in merged steps
    #: but for the seed.
    sampling: Mapping[str, Any]
    #: The critic's value of each token when it was sampled, ``(C,)`` float32, if there is a critic; 0 where the mask
    #: is False.
    values: FloatArray | None = None

    def __len__(self) -> int:
        """P + C."""
        return len(self.prompt_ids) + len(self.completion_ids)

    @property
    def n_trained(self) -> int:
        """Tokens that train."""
        return int(self.mask.sum())


@dataclass(frozen=True, slots=True, eq=False)
class RowBatch:
    """The rows of some groups, and where every sampled token went. Counts are of what trains, never of padding."""

    rows: tuple[TrainingRow, ...]
    ledger: Ledger
    #: Trajectories with at least one row.
    n_trajectories: int
    #: Steps with at least one trained token.
    n_steps: int
    #: Of these, steps that share the row of a step before them.
    merged_steps: int

    @property
    def share_merged(self) -> float:
        """Share of the steps that needed no row of their own, 0 to 1."""
        return self.merged_steps / self.n_steps if self.n_steps else 0.0
