"""The rows of one forward as a token tree, beside the padded tensors that TRL's loss reads.

``lay_out_batch`` adds one to each chunk with ``merge="tree"``. It says which tree positions are scored and where each
padded completion position finds its log-prob; weights, advantages and spans stay with the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from agentr1_core.errors import ConfigError, DataError
from agentr1_core.mdp import TokenArray
from agentr1_core.rows import TokenTree, TrainingRow, build_tree

TreePath = Literal["auto", "mask", "kv"]


@dataclass(frozen=True, slots=True)
class TreeSettings:
    """How trees are cut and run."""

    #: Most unique tokens of one forward, or those of the longest row if it has more.
    max_tokens: int = 8192
    #: ``mask``: all tokens in one forward under a tree mask. ``kv``: run by run, each continuing the keys and values
    #: of its ancestors. ``auto``: whichever is estimated to cost less, cutting trees where that is cheaper still.
    path: TreePath = "auto"

    def __post_init__(self) -> None:
        if self.max_tokens < 2:
            raise ConfigError(
                f"tree_tokens is {self.max_tokens}.", "Give the unique tokens of one forward, at least 2."
            )
        if self.path not in get_args(TreePath):
            raise ConfigError(f"tree_path is '{self.path}'.", f"Choose one of: {', '.join(get_args(TreePath))}.")


@dataclass(frozen=True, slots=True, eq=False)
class TreeChunk:
    """B rows with C completion positions as one tree."""

    tree: TokenTree
    #: Tree positions whose log-prob is computed, ascending, ``(S,)``: a token that several rows share is scored once.
    scored: NDArray[np.int64]
    #: For each completion position its place in ``scored``, ``(B, C)``; -1 where it is padding.
    places: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[TrainingRow | None], padding_row_token: int, width: int) -> TreeChunk:
        """The tree of the rows of a chunk.

        Args:
            rows: As for ``make_chunk``; ``None`` is a padding row of two tokens.
            padding_row_token: What a padding row is made of.
            width: C, the padded width of the completions.

        Raises:
            DataError: A row has no prompt, so that nothing predicts its first token.
        """
        tree = build_tree([row_tokens(row, padding_row_token) for row in rows])
        parts = []
        for row, path in zip(rows, tree.paths, strict=True):
            n_prompt = 1 if row is None else len(row.prompt_ids)
            if n_prompt == 0:
                raise DataError(
                    "A row has an empty prompt, so nothing predicts its first token.",
                    "Let the observation hold at least one token.",
                )
            parts.append(path[n_prompt:].astype(np.int64))
        scored, inverse = np.unique(np.concatenate(parts), return_inverse=True)
        places = np.full((len(rows), width), -1, dtype=np.int64)
        start = 0
        for number, part in enumerate(parts):
            places[number, : len(part)] = inverse[start : start + len(part)]
            start += len(part)
        return cls(tree, scored, places)


def row_tokens(row: TrainingRow | None, padding_row_token: int) -> TokenArray:
    """Prompt and completion of a row, ``(P + C,)`` int32."""
    if row is None:
        return np.full(2, padding_row_token, dtype=np.int32)
    return np.concatenate([row.prompt_ids, row.completion_ids]).astype(np.int32)
