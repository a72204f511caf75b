"""The quick start's chat model of about 0.2 million parameters, and its tokenizer."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentr1_recipes import tiny
from agentr1_recipes.quickstart.demonstrations import demonstrate

#: Size of an attention head: the smallest that vLLM can do on CPU.
HEAD = 32


def write_tiny_model(folder: Path, seed: int, hidden: int = 96, layers: int = 2) -> Path:
    """Write model and tokenizer in the Hugging Face layout and return the folder; see ``tiny.write_tiny_model``.

    Args:
        folder: Created if missing.
        seed: Of the weights; the tokenizer is always the same.
        hidden: Width; a multiple of ``HEAD``.
        layers: Depth.
    """
    heads = hidden // HEAD
    return tiny.write_tiny_model(folder, _texts(), seed, hidden=hidden, layers=layers, heads=heads, phrases=True)


def train_tokenizer() -> Any:
    """The recipe's tokenizer: byte-level BPE in which each number, digit for digit, is a unit."""
    return tiny.train_tokenizer(_texts(), phrases=True)


def _texts() -> Iterator[str]:
    rng = random.Random(1)
    return tiny.as_texts(demonstrate(rng) for _ in range(600))
