"""Keys and values of a batch of sequences in one buffer that grows in place.

transformers' own dynamic cache copies everything at each token; a slab writes one column and hands out a view.
All rows end at the same column; shorter ones start later. Lanes and prefill use slabs; the model sees them
through ``Slab.cache``. A slab knows nothing of tokens, requests or weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

#: Keys and values of one sequence: one tensor ``(n_planes, n_heads, n_tokens, head_dim)`` for each shape of head.
Block = tuple[Tensor, ...]


@dataclass(frozen=True, slots=True)
class KvLayout:
    """Where each layer's keys and values lie: planes of equal shape share one buffer, so copies are few and large."""

    #: ``(n_planes, n_heads, head_dim)`` and type of each buffer.
    buffers: tuple[tuple[int, int, int, torch.dtype], ...]
    #: For each layer the (buffer, plane) of its keys and of its values; ``None`` for layers that keep none.
    layers: tuple[tuple[tuple[int, int], tuple[int, int]] | None, ...]

    @property
    def bytes_per_token(self) -> int:
        """Memory of one token's keys and values in all layers."""
        return sum(planes * heads * dim * dtype.itemsize for planes, heads, dim, dtype in self.buffers)

    @classmethod
    def of(cls, cache: Cache) -> KvLayout:
        """Read the layout off a transformers cache that a forward has filled."""
        shapes: list[tuple[int, int, torch.dtype]] = []
        counts: list[int] = []

        def place(tensor: Tensor) -> tuple[int, int]:
            shape = (tensor.shape[1], tensor.shape[3], tensor.dtype)
            if shape not in shapes:
                shapes.append(shape)
                counts.append(0)
            buffer = shapes.index(shape)
            counts[buffer] += 1
            return buffer, counts[buffer] - 1

        layers = tuple(
            (place(layer.keys), place(layer.values)) if layer.is_initialized else None for layer in cache.layers
        )
        return cls(tuple((n, *shape) for n, shape in zip(counts, shapes, strict=True)), layers)


class Slab:
    """Buffers ``(n_planes, n_rows, n_heads, n_columns, head_dim)``, of which ``begin:end`` are columns in use."""

    def __init__(self, layout: KvLayout, rows: int, columns: int, end: int, device: torch.device) -> None:
        self.layout = layout
        self.device = device
        self.n_rows = rows
        self.begin = self.end = end
        #: Columns before ``end`` that the forward under way is to fill.
        self.n_new = 0
        # Zeros, not garbage: masked columns still meet a weight of 0, and 0 * NaN is NaN.
        self.buffers = [
            torch.zeros(planes, rows, heads, columns, dim, dtype=dtype, device=device)
            for planes, heads, dim, dtype in layout.buffers
        ]
        self.cache = Cache(
            layers=[DynamicLayer() if place is None else _WindowLayer(self, *place) for place in layout.layers]
        )

    @property
    def columns(self) -> int:
        """Columns there is room for."""
        return self.buffers[0].shape[3]

    @property
    def capacity(self) -> int:
        """Rows there is room for."""
        return self.buffers[0].shape[1]

    def put(self, row: int, block: Block, end: int) -> None:
        """Copy a sequence's keys and values into ``row``, its last token in the column before ``end``."""
        for buffer, part in zip(self.buffers, block, strict=True):
            buffer[:, row, :, end - part.shape[2] : end] = part

    def view(self, row: int, begin: int, end: int) -> Block:
        """The columns ``begin:end`` of one row, not copied."""
        return tuple(buffer[:, row, :, begin:end] for buffer in self.buffers)

    def keep(self, rows: Sequence[int]) -> list[int]:
        """Drop all rows but these; return which old row each new one is.

        Kept rows from the back move into the holes, so little is copied.
        """
        n = len(rows)
        kept = set(rows)
        movers = [row for row in rows if row >= n]
        holes = [row for row in range(n) if row not in kept]
        order = list(range(n))
        if holes:
            for hole, mover in zip(holes, movers, strict=True):
                order[hole] = mover
            source = torch.tensor(movers, device=self.device)
            target = torch.tensor(holes, device=self.device)
            for buffer in self.buffers:
                used = buffer[:, :, :, self.begin : self.end]
                used[:, target] = used[:, source]
        self.n_rows = n
        return order

    def resized(self, rows: int, columns: int, end: int) -> Slab:
        """A new slab with the same content in other dimensions, its last column before ``end``."""
        new = Slab(self.layout, rows, columns, end, self.device)
        new.n_rows, width = self.n_rows, self.end - self.begin
        new.begin = end - width
        for target, source in zip(new.buffers, self.buffers, strict=True):
            target[:, : self.n_rows, :, end - width : end] = source[:, : self.n_rows, :, self.begin : self.end]
        return new


class _WindowLayer(DynamicLayer):  # type: ignore[misc]  # transformers is seen as Any
    """One layer of a slab in the shape that transformers asks of a cache layer."""

    def __init__(self, slab: Slab, keys: tuple[int, int], values: tuple[int, int]) -> None:
        super().__init__()
        self.slab, self.key_place, self.value_place = slab, keys, values
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Write the new columns, which end at ``slab.end``, and return all in use.

        Whoever calls the model moves ``slab.end`` first: every layer then writes to the same columns.
        """
        slab, n_new = self.slab, key_states.shape[2]
        views = []
        for (buffer, plane), states in ((self.key_place, key_states), (self.value_place, value_states)):
            used = slab.buffers[buffer][plane, : slab.n_rows, :, slab.begin : slab.end]
            used[:, :, -n_new:] = states
            views.append(used)
        return views[0], views[1]

    def get_seq_length(self) -> int:
        """Columns before the ones being computed."""
        return self.slab.end - self.slab.begin - self.slab.n_new

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Columns that queries may attend to, and the offset of the first."""
        return self.slab.end - self.slab.begin, 0
