"""Which models a token tree is exact for. A model for which it would be wrong is refused, with the reason.

The trainer calls ``check_tree_model`` at start-up with ``merge="tree"``. It looks at the configuration and at the
modules, and never runs the model.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch

from agentr1_core.errors import ConfigError

#: Attributes of configurations with which experts drop tokens when they are full.
_CAPACITY = ("expert_capacity", "capacity_factor", "moe_capacity_factor", "moe_expert_capacity_factor")
#: Attributes of modules with probabilities or widths of noise that training adds, beside dropout modules.
_NOISE = ("attention_dropout", "jitter_noise", "router_jitter_noise", "input_jitter_noise", "layerdrop")


def check_tree_model(model: Any, *, aux_loss: bool = False, device: torch.device | None = None) -> None:
    """Refuse a causal language model whose rows would not train the same in a tree.

    Args:
        model: Without wrappers but for an adapter.
        aux_loss: Whether a load-balancing loss of the experts is trained.
        device: Where it runs.

    Raises:
        ConfigError: Naming the reason and the mend.
    """
    for problem, mend in _reasons(model, aux_loss, device or torch.device("cpu")):
        raise ConfigError(f"merge='tree' would be wrong for this model: {problem}", mend)


def noise_in(model: Any) -> str | None:
    """What makes two forwards of the same tokens differ in training, or ``None``."""
    return next((problem for problem, _ in _noise_reasons(model)), None)


def cache_argument(backbone: Any) -> str | None:
    """What the backbone's forward calls its key-value cache, by the version of transformers; ``None`` without one."""
    taken = inspect.signature(type(backbone).forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in taken), None)


def can_use_cache(model: Any) -> bool:
    """Whether a forward may continue a differentiable key-value cache: recomputed layers lose it, and wrappers that
    shard a model count its forwards."""
    recomputes = any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    sharded = any(hasattr(p, "ds_id") or type(p).__name__ == "DTensor" for p in model.parameters())
    return (
        cache_argument(model.base_model) is not None
        and not sharded
        and not (recomputes and model.training and torch.is_grad_enabled())
    )


def _reasons(model: Any, aux_loss: bool, device: torch.device) -> Iterator[tuple[str, str]]:
    separate = "Set merge='linear' or merge='none'."
    inner = model.get_base_model() if hasattr(model, "get_base_model") else model
    config = inner.config.get_text_config()
    yield from _attention_reasons(config, inner, device, separate)
    kinds = set(getattr(config, "layer_types", None) or ())
    if getattr(inner, "_is_stateful", False) or any("linear" in kind or "mamba" in kind for kind in kinds):
        yield "its linear-attention or state-space layers read tokens in a line and ignore the tree mask.", separate
    other = kinds - {"full_attention", "sliding_attention", "chunked_attention"}
    if other:
        yield f"layers of type {', '.join(sorted(other))} are not known to keep to the tree mask.", separate
    if "position_ids" not in inspect.signature(type(inner.base_model).forward).parameters:
        yield "it takes no position ids, so tokens would not stand at their depth.", separate
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    if rope.get("rope_type") in ("dynamic", "longrope"):
        yield f"its '{rope['rope_type']}' rotary embedding depends on the longest row of a forward.", separate
    for name in _CAPACITY:
        if getattr(config, name, None):
            yield f"its experts drop tokens at a capacity ({name}), which depends on what shares a forward.", separate
    if aux_loss:
        yield (
            "the load-balancing loss of its experts counts tokens, and a tree counts shared ones once.",
            "Set router_aux_loss_coef to 0, or merge='linear'.",
        )
    yield from _noise_reasons(model)


def _attention_reasons(config: Any, model: Any, device: torch.device, separate: str) -> Iterator[tuple[str, str]]:
    kinds = set(getattr(config, "layer_types", None) or ())
    window = getattr(config, "sliding_window", None)
    windowed = not kinds and window is not None and getattr(config, "use_sliding_window", True) is not False
    if windowed or kinds & {"sliding_attention", "chunked_attention"}:
        yield f"it attends in a sliding window (of {window}), which a tree mask bypasses.", separate
    kind = str(model.config._attn_implementation)
    if kind == "flex_attention" and device.type != "cuda":
        yield "flex_attention has no backward on the CPU.", "Load the model with attn_implementation='sdpa'."
    elif kind not in ("sdpa", "eager", "flex_attention"):
        yield f"attention '{kind}' takes no mask of its own.", "Load the model with attn_implementation='sdpa'."


def _noise_reasons(model: Any) -> Iterator[tuple[str, str]]:
    mend = "Set disable_dropout=True, no dropout in the adapter, and none in the model's configuration."
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.modules.dropout._DropoutNd) and module.p > 0:
            yield f"dropout {module.p} in '{name}' would differ between rows that share a token.", mend
        for noise in _NOISE:
            amount = getattr(module, noise, 0.0)
            if isinstance(amount, float) and amount > 0:
                yield f"{noise}={amount} in '{name}' would differ between rows that share a token.", mend
