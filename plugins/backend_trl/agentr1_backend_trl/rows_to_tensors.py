"""Training rows as the padded tensors that TRL's loss reads.

The trainer calls ``make_chunk`` for the rows of one forward: prompts are padded on the left and completions on the
right. Padding rows are attended like any other but have no token in the loss mask, so they enter no sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from trl.trainer.utils import pad

from agentr1_core.rows import CONTEXT, TrainingRow


class Chunk(dict[str, Any]):
    """The tensors of one forward, B rows with P prompt and C completion positions.

    ``prompt_ids``, ``prompt_mask`` (B, P); ``completion_ids``, ``completion_mask``, ``loss_mask`` (1 where a token
    trains), ``advantages``, ``weights`` (the token's weight in the loss of the optimiser step over all ranks),
    ``sampling_logps``, ``span_ids`` (B, C); later ``old_logps``, ``ref_logps``, ``is_ratio`` (B, C). Plain numbers:
    ``window_tokens`` and ``window_steps`` (what trains in the window on all ranks) and ``share`` (1 / chunks of the
    part). With a critic also ``returns`` and ``old_values`` (B, C), with ``merge="tree"`` also ``tree``, a
    ``TreeChunk``.
    """


def make_chunk(
    rows: Sequence[TrainingRow | None],
    weights: Sequence[NDArray[np.float64] | None],
    *,
    pad_token_id: int,
    padding_row_token: int,
    pad_to_multiple_of: int | None,
    window_tokens: int,
    share: float,
    device: torch.device,
) -> Chunk:
    """Pad rows to tensors; ``None`` becomes a padding row of one prompt and one completion token."""
    prompts = [[padding_row_token] if row is None else row.prompt_ids for row in rows]
    completions = [[padding_row_token] if row is None else row.completion_ids for row in rows]

    def left(values: Sequence[Any], fill: float, dtype: torch.dtype) -> torch.Tensor:
        return _pad(values, fill, dtype, "left", pad_to_multiple_of, device)

    def right(values: Sequence[Any], fill: float, dtype: torch.dtype) -> torch.Tensor:
        return _pad(values, fill, dtype, "right", pad_to_multiple_of, device)

    def field(name: str, missing: float) -> list[Any]:
        return [[missing] if row is None else getattr(row, name) for row in rows]

    chunk = Chunk(
        prompt_ids=left(prompts, pad_token_id, torch.long),
        prompt_mask=left([np.ones(len(ids)) for ids in prompts], 0, torch.long),
        completion_ids=right(completions, pad_token_id, torch.long),
        completion_mask=right([np.ones(len(ids)) for ids in completions], 0, torch.long),
        loss_mask=right(field("mask", 0), 0, torch.long),
        advantages=right(field("advantages", 0.0), 0.0, torch.float32),
        weights=right([[0.0] if w is None else w for w in weights], 0.0, torch.float32),
        sampling_logps=right(field("logprobs", 0.0), 0.0, torch.float32),
        span_ids=right(field("span_ids", CONTEXT), CONTEXT, torch.long),
        window_tokens=window_tokens,
        share=share,
    )
    if any(row is not None and row.values is not None for row in rows):
        for name, source in (("returns", "returns"), ("old_values", "values")):
            chunk[name] = right(field(source, 0.0), 0.0, torch.float32)
    return chunk


def _pad(
    values: Sequence[Any], fill: float, dtype: torch.dtype, side: str, multiple: int | None, device: torch.device
) -> torch.Tensor:
    tensors = [torch.as_tensor(np.asarray(value)).to(dtype) for value in values]
    return pad(tensors, padding_value=fill, padding_side=side, pad_to_multiple_of=multiple).to(device)
