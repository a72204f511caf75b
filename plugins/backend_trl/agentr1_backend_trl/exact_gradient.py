"""Gradients of several row layouts in double precision, where only a wrong layout can tell them apart.

``agentr1 certify`` calls it on a copy of the policy. The loss is the plain policy gradient, written here without the
trainer's loss code, so that it checks the layouts and nothing else.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from agentr1_backend_trl.tree_chunk import TreeChunk
from agentr1_backend_trl.tree_forward import causal_lm, hidden_by_cache, hidden_by_mask, spread_over_rows
from agentr1_core.credit import Credit
from agentr1_core.mdp import Group
from agentr1_core.rows import TrainingRow, make_rows


class DoublePrecision(TorchFunctionMode):  # type: ignore[misc]  # torch leaves it untyped
    """While it lasts, a request for float32 gives float64: norms and softmaxes of transformers ask for float32 whatever
    the model's precision, and would bring a noise of 1e-7 into a model in float64."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        args = tuple(torch.float64 if one is torch.float32 else one for one in args)
        given = {name: torch.float64 if one is torch.float32 else one for name, one in (kwargs or {}).items()}
        return func(*args, **given)


def double_copy(model: Any) -> Any:
    """The model in float64, beside the original. Experts run one by one, since grouped products know no float64."""
    copied = copy.deepcopy(model).double().train()
    config = causal_lm(copied).config
    if getattr(config, "_experts_implementation", None) is not None:
        config._experts_implementation = "eager"
    return copied


def layout_gradient(
    model: Any,
    groups: Sequence[Group],
    credit: Credit,
    layout: str,
    change: Callable[[TreeChunk], TreeChunk] | None = None,
) -> torch.Tensor:
    """Gradient of ``-sum_j A_j log pi(a_j | s_j)`` over all trained tokens, all parameters in a row.

    Args:
        model: In float64, with or without an adapter.
        groups: The episodes.
        credit: Theirs.
        layout: ``none``, ``linear``, ``mask`` or ``kv``.
        change: Damages the tree, for negative controls.
    """
    model.zero_grad(set_to_none=True)
    trees = layout in ("mask", "kv")
    rows = make_rows(groups, credit, merge="linear" if layout == "linear" else "none").rows
    with DoublePrecision():
        if trees:
            chunk = TreeChunk.of(rows, 0, max(len(row.completion_ids) for row in rows))
            _tree_loss(causal_lm(model), rows, change(chunk) if change is not None else chunk, layout).backward()
        else:
            for row in rows:
                _row_loss(causal_lm(model), row).backward()
    found = [p.grad.reshape(-1).cpu() for p in model.parameters() if p.grad is not None]
    model.zero_grad(set_to_none=True)
    return torch.cat(found)


def _row_loss(model: Any, row: TrainingRow) -> torch.Tensor:
    device = next(model.parameters()).device
    ids = torch.as_tensor(np.concatenate([row.prompt_ids, row.completion_ids]).astype(np.int64), device=device)
    hidden = model.base_model(input_ids=ids[None], use_cache=False).last_hidden_state[0]
    first = len(row.prompt_ids) - 1
    logps = _log_probs(model, hidden[first:-1], ids[first + 1 :])
    return -(logps * _advantages([row], len(row.completion_ids), device)[0]).sum()


def _tree_loss(model: Any, rows: Sequence[TrainingRow], chunk: TreeChunk, layout: str) -> torch.Tensor:
    device = next(model.parameters()).device
    ids = torch.as_tensor(chunk.tree.token_ids.astype(np.int64), device=device)
    hidden_of = hidden_by_mask if layout == "mask" else hidden_by_cache
    backbone = model.base_model
    hidden = hidden_of(backbone, backbone, chunk.tree, ids[None]).last_hidden_state[0]
    predictors = torch.as_tensor(chunk.tree.parents[chunk.scored].astype(np.int64), device=device)
    logps = _log_probs(model, hidden[predictors], ids[torch.as_tensor(chunk.scored, device=device)])
    return -(spread_over_rows(logps, chunk) * _advantages(rows, chunk.places.shape[1], device)).sum()


def _log_probs(model: Any, hidden: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    logits = model.get_output_embeddings()(hidden)
    return torch.log_softmax(logits, dim=-1).gather(-1, labels[:, None])[:, 0]


def _advantages(rows: Sequence[TrainingRow], width: int, device: torch.device) -> torch.Tensor:
    found = np.zeros((len(rows), width))
    for number, row in enumerate(rows):
        found[number, : len(row.completion_ids)] = row.advantages  # 0 where the mask is False
    return torch.as_tensor(found, device=device)
