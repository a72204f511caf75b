"""One forward over a token tree: log-probs of every row from one computation of every unique token.

The trainer calls ``tree_logps`` where TRL would run padded rows. Two paths give the same numbers: all tokens at once
under a tree mask, or run by run over a differentiable key-value cache. The loss never learns which one it was.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from accelerate.utils import is_peft_model
from transformers.cache_utils import DynamicCache

from agentr1_backend_trl.tree_chunk import TreeChunk, TreePath
from agentr1_backend_trl.tree_cost import cheaper_path, cost_of
from agentr1_backend_trl.tree_models import cache_argument, can_use_cache
from agentr1_core.errors import ConfigError
from agentr1_core.rows import TokenTree, TreeCost


def tree_logps(
    trainer: Any, model: Any, chunk: TreeChunk, path: TreePath, *, compute_entropy: bool = False
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Log-probs and entropies of the completion tokens of the rows, ``(B, C)`` each; 0 where a position is padding.

    Args:
        trainer: The TRL trainer; its fused language-model head scores the tokens, temperature included.
        model: The policy or the reference model, wrapped or not.
        chunk: The rows as a tree.
        path: How the tree is run.
        compute_entropy: Whether entropies are wanted.
    """
    causal = causal_lm(trainer.accelerator.unwrap_model(model))
    device = trainer.accelerator.device
    if path == "auto":
        path = cheaper_path(chunk.tree, cost_for(trainer, model))
    ids = torch.as_tensor(chunk.tree.token_ids.astype(np.int64), device=device)
    scored = torch.as_tensor(chunk.scored, device=device)
    with _backbone_runs_tree(causal.base_model, chunk, path), trainer.accelerator.autocast():
        # With the labels already shifted, TRL's head scores one label for each hidden state it is given.
        out = model(input_ids=ids[None], shift_labels=ids[scored][None], fused_lm_head=True)
    entropies = spread_over_rows(out.entropy[0], chunk) if compute_entropy else None
    return spread_over_rows(out.log_probs[0], chunk), entropies


def cost_for(trainer: Any, model: Any) -> TreeCost:
    """What trees cost on a model, as it stands: whether it recomputes layers decides whether it can use a cache."""
    causal = causal_lm(trainer.accelerator.unwrap_model(model))
    width = int(causal.config.get_text_config().hidden_size)
    return cost_of(width, trainer.accelerator.device.type, can_use_cache(causal))


def causal_lm(model: Any) -> Any:
    """The causal language model inside an adapter, or the model itself."""
    return model.get_base_model() if is_peft_model(model) else model


def spread_over_rows(values: torch.Tensor, chunk: TreeChunk) -> torch.Tensor:
    """``(S,)`` values of scored tokens as ``(B, C)``; a shared token's gradient is the sum over its rows."""
    places = torch.as_tensor(chunk.places, device=values.device)
    return torch.where(places >= 0, values[places.clamp(min=0)], torch.zeros((), device=values.device).to(values))


@contextlib.contextmanager
def _backbone_runs_tree(backbone: Any, chunk: TreeChunk, path: TreePath) -> Iterator[None]:
    """While it lasts, the backbone returns the hidden states that predict the scored tokens.

    The forward is replaced inside the model, not around it, so that DDP, adapters and the head work as they always do.
    """
    own = backbone.__dict__.get("forward")
    original = backbone.forward
    predictors = chunk.tree.parents[chunk.scored].astype(np.int64)
    hidden_of = hidden_by_mask if path == "mask" else hidden_by_cache

    def forward(input_ids: torch.Tensor, **_: Any) -> Any:
        out = hidden_of(original, backbone, chunk.tree, input_ids)
        at = torch.as_tensor(predictors, device=out.last_hidden_state.device)
        out.last_hidden_state = out.last_hidden_state[:, at]
        return out

    backbone.forward = forward
    try:
        yield
    finally:
        if own is None:
            del backbone.forward
        else:
            backbone.forward = own


def hidden_by_mask(run: Callable[..., Any], backbone: Any, tree: TokenTree, ids: torch.Tensor) -> Any:
    """All tokens in one forward: each sees its ancestors alone, at the position it has in its rows.

    Args:
        run: Forward of the backbone.
        backbone: The module.
        tree: The tree of T tokens.
        ids: ``(1, T)``.
    """
    mask = tree_mask(tree, backbone.config._attn_implementation, ids.device, next(backbone.parameters()).dtype)
    return run(input_ids=ids, attention_mask=mask, position_ids=_depths(tree, ids.device), use_cache=False)


def hidden_by_cache(run: Callable[..., Any], backbone: Any, tree: TokenTree, ids: torch.Tensor) -> Any:
    """Each run of tokens without a branch in a forward of its own, over the keys and values of its ancestors.

    No ``T x T`` mask and no attention to what is not seen, but more and smaller forwards. Arguments as for
    ``hidden_by_mask``.
    """
    name = cache_argument(backbone)
    if name is None:
        raise ConfigError(
            f"{type(backbone).__name__} takes no key-value cache, so a tree cannot run over one.",
            "Use tree_path 'mask'.",
        )
    depths = _depths(tree, ids.device)
    starts = tree.segment_starts()
    ends = [*starts[1:].tolist(), len(tree)]
    kept: dict[int, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    hidden = []
    out = None
    for start, end in zip(starts.tolist(), ends, strict=True):
        cache = DynamicCache(config=backbone.config)
        for layer, (keys, values) in enumerate(kept.get(int(tree.parents[start]), ())):
            cache.update(keys, values, layer)
        out = run(
            input_ids=ids[:, start:end],
            position_ids=depths[:, start:end],
            use_cache=True,
            **{name: cache},
        )
        hidden.append(out.last_hidden_state)
        if end < tree.subtree_end[start]:  # its last token is the branch that others continue
            kept[end - 1] = [(layer.keys, layer.values) for layer in cache.layers]
    if out is None:
        raise ValueError("A tree without tokens cannot be run.")
    out.last_hidden_state = torch.cat(hidden, dim=1)
    return out


def tree_mask(tree: TokenTree, implementation: str, device: torch.device, dtype: torch.dtype) -> Any:
    """The tree mask in the form that an attention implementation of transformers reads.

    ``sdpa`` takes a boolean ``(1, 1, T, T)`` mask. ``eager`` would add a boolean one to its scores, which is silently
    wrong, so it gets one of zeros and the least number of ``dtype``. ``flex_attention`` gets a block mask.
    """
    ends = torch.as_tensor(tree.subtree_end, device=device).long()
    if implementation == "flex_attention":
        return _block_mask(ends)
    position = torch.arange(len(tree), device=device)
    allowed = ((position[None, :] <= position[:, None]) & (position[:, None] < ends[None, :]))[None, None]
    if implementation == "sdpa":
        return allowed
    return torch.zeros(allowed.shape, dtype=dtype, device=device).masked_fill(~allowed, torch.finfo(dtype).min)


def _block_mask(ends: torch.Tensor) -> Any:
    from torch.nn.attention.flex_attention import create_block_mask

    def seen(batch: Any, head: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
        return (key <= query) & (query < ends[key])

    return create_block_mask(seen, None, None, len(ends), len(ends), device=str(ends.device))


def _depths(tree: TokenTree, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(tree.depths.astype(np.int64), device=device)[None]
