"""The model as the scheduler sees it: token ids, positions and a mask in, logits of the last position out.

It finds out once, by trying, how the model can be driven: with a key-value cache and which form of mask, or, for
models whose state cannot be padded and cut (recurrent ones), by computing every context anew. It also switches a
shared model to evaluation while the engine works and back afterwards.
"""

from __future__ import annotations

import inspect
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from transformers.cache_utils import DynamicCache

from agentr1_engine_transformers.slab import KvLayout, Slab


@runtime_checkable
class _Adapted(Protocol):
    """A model wrapped by peft, whose own ``forward`` hides what the wrapped one takes."""

    def get_base_model(self) -> nn.Module: ...


class ModelRunner:
    """Drives one model. Used by the worker thread only."""

    def __init__(self, model: nn.Module) -> None:
        self.model: Any = model
        self.device: torch.device = next(model.parameters()).device
        base: Any = model.get_base_model() if isinstance(model, _Adapted) else model
        accepted = inspect.signature(base.forward).parameters
        self._keeps_logits = "logits_to_keep" in accepted
        # Renamed in the course of transformers 5.
        self._cache_name = "cache" if "cache" in accepted else "past_key_values"
        self._takes_positions = "position_ids" in accepted
        self._wide_mask = False
        self._asleep: list[nn.Module] = []
        #: How keys and values are laid out; ``None`` when contexts are computed anew at each token.
        self.layout: KvLayout | None = None
        #: Whether a gap between a cached prefix and the rest of the prompt does no harm (not so for sliding windows).
        self.allows_gaps = False

    @property
    def n_parameters(self) -> int:
        """Parameters of the model, shared ones counted once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def wake(self) -> None:
        """Put every training module in evaluation mode: no dropout, no gradient checkpointing."""
        if not self._asleep:
            self._asleep = [module for module in self.model.modules() if module.training]
            for module in self._asleep:
                module.training = False

    def rest(self) -> None:
        """Put back the modes that ``wake`` found."""
        for module in self._asleep:
            module.training = True
        self._asleep = []

    def probe(self) -> None:
        """Run a few tokens in the ways the scheduler would and keep the fastest that gives the right logits.

        Raises whatever the model raises when even a plain forward fails.
        """
        config = self.model.config.get_text_config(decoder=True)
        self.allows_gaps = self._takes_positions and not _has_sliding_layers(config)
        ids = torch.arange(1, 9, device=self.device).remainder(config.vocab_size).unsqueeze(0)
        wanted = self.full(ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([7], device=self.device))
        try:
            cache = DynamicCache()
            self.model(input_ids=ids[:, :1], use_cache=True, **{self._cache_name: cache})
            layout = KvLayout.of(cache)
            if not layout.buffers or not self._decodes(layout, ids, wanted):
                return
        except (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError, ValueError):
            # Recurrent and other unusual models refuse such a cache in many ways; all mean the same here.
            return
        self.layout = layout
        if self.allows_gaps and config._attn_implementation == "sdpa" and self._takes_positions:
            self._wide_mask = True
            try:
                self._wide_mask = self._decodes(layout, ids, wanted)
            except (AttributeError, IndexError, RuntimeError, TypeError, ValueError):
                self._wide_mask = False

    def _decodes(self, layout: KvLayout, ids: Tensor, wanted: Tensor) -> bool:
        """Whether prefill of seven tokens beside a padded row, then one decoding step, gives the wanted logits."""
        slab = Slab(layout, 2, 8, 0, self.device)
        mask = torch.ones(2, 8, dtype=torch.bool, device=self.device)
        mask[1, :4] = False
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        both = ids.repeat(2, 1)
        slab.end = 7
        self.cached(slab, both[:, :7], positions[:, :7], mask[:, :7])
        slab.end = 8
        got = self.cached(slab, both[:, 7:], positions[:, 7:], mask)
        short = self.full(ids[:, 4:], mask[:1, :4].new_ones(1, 4), torch.tensor([3], device=self.device))
        tolerance = 1e-3 if wanted.dtype == torch.float32 else 0.05
        both_wanted = torch.cat([wanted, short]).float()
        return bool((got.float() - both_wanted).abs().max() <= tolerance * (1 + both_wanted.abs().max()))

    def cached(self, slab: Slab, ids: Tensor, positions: Tensor, mask: Tensor | None) -> Tensor:
        """Compute new tokens on top of a slab, whose ``end`` already counts them.

        Args:
            slab: Cached keys and values; its last ``n_new`` columns are written.
            ids: ``(n_rows, n_new)`` int64.
            positions: ``(n_rows, n_new)`` int64, counted within each sequence.
            mask: ``(n_rows, slab.end - slab.begin)`` bool, or ``None`` when no row is padded.

        Returns:
            Logits after the last token, ``(n_rows, n_vocab)``.
        """
        slab.n_new = ids.shape[1]
        extra: dict[str, Any] = {self._cache_name: slab.cache}
        if self._keeps_logits:
            extra["logits_to_keep"] = 1
        if self._takes_positions:
            extra["position_ids"] = positions
        if mask is not None and self._wide_mask and slab.n_new == 1:
            mask = mask[:, None, None, :]
        try:
            out = self.model(
                input_ids=ids,
                attention_mask=mask,
                use_cache=True,
                return_dict=True,
                **extra,
            )
        finally:
            slab.n_new = 0
        logits: Tensor = out.logits[:, -1]
        return logits

    def full(self, ids: Tensor, mask: Tensor, last: Tensor) -> Tensor:
        """Compute whole contexts, padded on the right, without a cache.

        Args:
            ids: ``(n_rows, n_columns)`` int64.
            mask: The same shape, bool.
            last: ``(n_rows,)`` index of each row's last token.

        Returns:
            Logits after each row's last token, ``(n_rows, n_vocab)``.
        """
        out = self.model(input_ids=ids, attention_mask=mask.long(), use_cache=False)
        logits: Tensor = out.logits[torch.arange(len(last), device=last.device), last]
        return logits


def _has_sliding_layers(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return any(kind != "full_attention" for kind in kinds)
    return (
        getattr(config, "sliding_window", None) is not None or getattr(config, "attention_chunk_size", None) is not None
    )
