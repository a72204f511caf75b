"""The token tree: rows that share prefixes, laid out so that every unique token stands once.

``plan_trees`` decides which rows share a tree and ``build_tree`` lays one out; backends run it as one forward and
read the log-probs of each row back through its path. Only integer tokens are compared, and nothing here computes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from agentr1_core.errors import ConfigError
from agentr1_core.mdp import TokenArray

IntArray = NDArray[np.int32]

#: Parent of a token that starts a row.
NO_PARENT = -1


@dataclass(frozen=True, slots=True, eq=False)
class TokenTree:
    """Rows as a trie in depth-first pre-order, T unique tokens. Any row is the path from a root to one token.

    A token may see exactly its ancestors and itself, which one number a key decides: position ``i`` may attend
    position ``j`` if ``j <= i < subtree_end[j]``. Two tokens are the same token only if all tokens before them are.
    """

    #: ``(T,)`` int32.
    token_ids: TokenArray
    #: Position of the token in each of its rows, counted from 0, ``(T,)`` int32: its position id.
    depths: IntArray
    #: Tree position of the token before it in its rows, ``(T,)`` int32; ``NO_PARENT`` for the first. Its log-prob is
    #: predicted there, which at a branch is not the position before it.
    parents: IntArray
    #: One past the last position of the token's descendants, ``(T,)`` int32.
    subtree_end: IntArray
    #: Tree positions of each row's tokens, ``(len(row),)`` int32, in the order the rows were given.
    paths: tuple[IntArray, ...]

    def __len__(self) -> int:
        """T."""
        return len(self.token_ids)

    @property
    def n_row_tokens(self) -> int:
        """Tokens of all rows together, shared ones counted once for each row."""
        return sum(len(path) for path in self.paths)

    def row_ids(self, row: int) -> TokenArray:
        """The tokens of a row, read back from the tree, ``(len(row),)`` int32."""
        found: TokenArray = self.token_ids[self.paths[row]]
        return found

    def attends(self) -> NDArray[np.bool_]:
        """Who may attend whom, ``(T, T)``: queries are rows, keys are columns."""
        position = np.arange(len(self))
        found: NDArray[np.bool_] = (position[None, :] <= position[:, None]) & (
            position[:, None] < self.subtree_end[None, :]
        )
        return found

    def segment_starts(self) -> NDArray[np.int64]:
        """First positions of the runs without a branch, ascending, ``(n_segments,)``."""
        n_children = np.bincount(self.parents[self.parents >= 0], minlength=len(self))
        branches = np.where(self.parents >= 0, n_children[self.parents] > 1, True)
        return np.flatnonzero(branches | (self.parents != np.arange(-1, len(self) - 1)))


def build_tree(rows: Sequence[TokenArray]) -> TokenTree:
    """Lay rows out as one tree.

    In lexicographic order each row repeats a prefix of the row before it and adds the rest, and what the rows add,
    one after the other, is the trie in pre-order.

    Raises:
        ValueError: A row is empty.
    """
    order = _sorted_rows(rows)
    shared = _shared_with_previous(rows, order)
    added = [len(rows[row]) - common for row, common in zip(order, shared, strict=True)]
    n_tokens = sum(added)
    token_ids, depths, parents = np.empty((3, n_tokens), dtype=np.int32)
    subtree_end = np.full(n_tokens, n_tokens, dtype=np.int32)
    paths: list[IntArray] = [np.empty(0, dtype=np.int32)] * len(rows)
    before = np.empty(0, dtype=np.int32)
    start = 0
    for row, common, n_new in zip(order, shared, added, strict=True):
        new = slice(start, start + n_new)
        subtree_end[before[common:]] = np.minimum(subtree_end[before[common:]], start)
        before = np.concatenate([before[:common], np.arange(start, new.stop, dtype=np.int32)])
        token_ids[new] = rows[row][common:]
        depths[new] = np.arange(common, common + n_new)
        parents[new] = np.concatenate([[NO_PARENT], before])[common : common + n_new]
        paths[row] = before
        start = new.stop
    return TokenTree(token_ids, depths, parents, subtree_end, tuple(paths))


@dataclass(frozen=True, slots=True)
class TreeCost:
    """What running a tree costs, in units of one token's linear layers."""

    #: Of one pair of query and key.
    per_pair: float
    #: Of starting one forward.
    per_forward: float
    #: Whether a tree may run branch by branch over a key-value cache, besides all at once under a mask.
    may_cache: bool = True

    def by_mask(self, n_tokens: ArrayLike) -> NDArray[np.float64]:
        """Of trees that run at once, where a dense mask pays for every pair of tokens."""
        n = np.asarray(n_tokens, dtype=np.float64)
        return n + n * n * self.per_pair + self.per_forward

    def by_cache(self, n_tokens: ArrayLike, n_pairs: ArrayLike, n_forwards: ArrayLike) -> NDArray[np.float64]:
        """Of trees that run branch by branch: only pairs that are seen, but more forwards."""
        tokens, pairs, forwards = (np.asarray(n, dtype=np.float64) for n in (n_tokens, n_pairs, n_forwards))
        return tokens + pairs * self.per_pair + forwards * self.per_forward


def plan_trees(
    rows: Sequence[TokenArray], max_tokens: int | None = None, cost: TreeCost | None = None
) -> list[list[int]]:
    """Which rows share a tree: the row numbers of each one.

    Rows are never cut. Where a tree is full, the next one repeats the context of its rows, so trees end at the
    boundaries of rows, and rows of one step each at those of steps. Rows that share much stay together.

    Args:
        rows: The tokens of each row.
        max_tokens: Most unique tokens of a tree.
        cost: Also cut where repeating a context is cheaper than a larger tree; the plan with the least sum is taken.

    Raises:
        ConfigError: A single row is longer than that.
        ValueError: A row is empty.
    """
    if max_tokens is not None and max_tokens < 1:
        raise ConfigError(f"A tree may have {max_tokens} tokens.", "Give at least 1, or no limit.")
    longest = max((len(row) for row in rows), default=0)
    if max_tokens is not None and longest > max_tokens:
        raise ConfigError(
            f"A row has {longest} tokens, but a tree may have {max_tokens} and rows are never cut.",
            f"Allow trees of at least {longest} tokens, or bound the episodes' context.",
        )
    order = _sorted_rows(rows)
    shared = _shared_with_previous(rows, order)
    if cost is not None:
        return _cheapest(order, [len(rows[row]) for row in order], shared, max_tokens, cost)
    trees: list[list[int]] = []
    size = 0
    for row, common in zip(order, shared, strict=True):
        more = len(rows[row]) - common
        if not trees or (max_tokens is not None and size + more > max_tokens):
            trees.append([])
            size, more = 0, len(rows[row])
        trees[-1].append(row)
        size += more
    return trees


def _cheapest(
    order: Sequence[int], lengths: Sequence[int], shared: Sequence[int], max_tokens: int | None, cost: TreeCost
) -> list[list[int]]:
    """Where to cut the sorted rows so that the trees cost least together, by dynamic programming over the cuts."""
    n = len(order)
    length, common = np.asarray(lengths, dtype=np.float64), np.asarray(shared, dtype=np.float64)
    pairs_to = length * (length + 1) / 2, common * (common + 1) / 2
    tokens = np.concatenate([[0.0], np.cumsum(length - common)])
    pairs = np.concatenate([[0.0], np.cumsum(pairs_to[0] - pairs_to[1])])
    # A row that leaves the one before it starts a run of tokens, and splits another at most.
    branches = np.concatenate([[0.0], np.cumsum([0.0, *(2.0 * (common[1:] < length[:-1]))][:n])])
    best = np.zeros(n + 1)
    first = np.zeros(n + 1, dtype=np.int64)
    for end in range(1, n + 1):
        size = common[:end] + tokens[end] - tokens[:end]
        each = cost.by_mask(size)
        if cost.may_cache:
            seen = pairs_to[1][:end] + pairs[end] - pairs[:end]
            each = np.minimum(each, cost.by_cache(size, seen, 1 + branches[end] - branches[1 : end + 1]))
        total = best[:end] + each
        if max_tokens is not None:
            total[size > max_tokens] = np.inf
        first[end] = np.argmin(total)
        best[end] = total[first[end]]
    trees: list[list[int]] = []
    end = n
    while end:
        trees.append(list(order[first[end] : end]))
        end = int(first[end])
    return trees[::-1]


def count_unique(rows: Sequence[TokenArray]) -> int:
    """Tokens of the tree of all rows, without building it."""
    order = _sorted_rows(rows)
    return sum(len(row) for row in rows) - sum(_shared_with_previous(rows, order))


def _sorted_rows(rows: Sequence[TokenArray]) -> list[int]:
    """Row numbers in lexicographic order of tokens, a prefix before what continues it."""
    if any(len(row) == 0 for row in rows):
        raise ValueError("A row without tokens has no place in a tree.")
    # Big-endian bytes of unsigned numbers compare as the numbers do.
    keys = [np.asarray(row, dtype=np.int64).astype(">u4").tobytes() for row in rows]
    return sorted(range(len(rows)), key=keys.__getitem__)


def _shared_with_previous(rows: Sequence[TokenArray], order: Sequence[int]) -> list[int]:
    """How many tokens each row shares with the one before it in the order; 0 for the first."""
    if not order:
        return []
    return [0, *(_common(rows[a], rows[b]) for a, b in pairwise(order))]


def _common(one: TokenArray, other: TokenArray) -> int:
    n = min(len(one), len(other))
    differs = np.flatnonzero(one[:n] != other[:n])
    return int(differs[0]) if len(differs) else n
