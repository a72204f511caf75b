"""Which way of running a token tree costs less: under one mask, or run by run over a cache.

``tree_forward`` asks once for each tree. It is an estimate in units of one token's linear layers, the same on every
process and in every run, so that results do not hang on the clock.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from agentr1_core.rows import TokenTree

#: What a forward of its own costs beside its tokens, in tokens: kernels are less busy, and caches are copied. For the
#: CPU it follows from the measured times of the benchmark's trees (docs/tree.md); elsewhere, where a token costs far
#: less than starting its kernels, it is a cautious guess that prefers one forward.
TOKENS_PER_FORWARD = {"cpu": 16.0}
ELSEWHERE = 512.0


def cheaper_path(tree: TokenTree, config: Any, device: str = "cpu") -> Literal["mask", "kv"]:
    """The path with the smaller estimate.

    Args:
        tree: The tree.
        config: Text configuration of the model.
        device: Kind of the device, as torch names it.
    """
    mask, cache = estimate(tree, int(config.hidden_size), device)
    return "mask" if mask <= cache else "kv"


def estimate(tree: TokenTree, hidden_size: int, device: str = "cpu") -> tuple[float, float]:
    """Cost under a mask and over a cache, in tokens.

    A layer of width d takes about ``24 d^2`` operations a token for its linear parts, and ``4 d`` for each pair of
    query and key (arXiv 2001.08361, table 1). A dense mask pays for all ``T^2`` pairs.
    """
    per_pair = 1 / (6 * hidden_size)
    n = float(len(tree))
    seen = float(np.sum(tree.depths.astype(np.float64) + 1))
    n_forwards = len(tree.segment_starts())
    return n + n * n * per_pair, n + seen * per_pair + n_forwards * TOKENS_PER_FORWARD.get(device, ELSEWHERE)
