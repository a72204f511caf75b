"""What running a token tree costs, and which way costs less: under one mask, or run by run over a cache.

``lay_out_batch`` cuts trees by it and ``tree_forward`` asks once for each. It is an estimate in units of one token's
linear layers, the same on every process and in every run, so that results do not hang on the clock.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from agentr1_core.rows import TokenTree, TreeCost

#: What a forward of its own costs beside its tokens, in tokens: kernels are less busy, and caches are copied. For the
#: CPU it follows from the measured times of the benchmark's trees (docs/tree.md); elsewhere, where a token costs far
#: less than starting its kernels, it is a cautious guess that prefers one forward.
TOKENS_PER_FORWARD = {"cpu": 16.0}
ELSEWHERE = 512.0


def cost_of(hidden_size: int, device: str, may_cache: bool = True) -> TreeCost:
    """The cost of running trees on a model.

    A layer of width d takes about ``24 d^2`` operations a token for its linear parts, and ``4 d`` for each pair of
    query and key (arXiv 2001.08361, table 1).

    Args:
        hidden_size: d.
        device: Kind of the device, as torch names it.
        may_cache: Whether the model can run over a differentiable cache.
    """
    return TreeCost(1 / (6 * hidden_size), TOKENS_PER_FORWARD.get(device, ELSEWHERE), may_cache)


def cheaper_path(tree: TokenTree, cost: TreeCost) -> Literal["mask", "kv"]:
    """The path with the smaller estimate."""
    mask, cache = estimate(tree, cost)
    return "mask" if mask <= cache or not cost.may_cache else "kv"


def estimate(tree: TokenTree, cost: TreeCost) -> tuple[float, float]:
    """Cost under a mask and over a cache, in tokens."""
    seen = float(np.sum(tree.depths.astype(np.float64) + 1))
    over_cache = cost.by_cache(len(tree), seen, len(tree.segment_starts()))
    return float(cost.by_mask(len(tree))), float(over_cache)
