"""Shapes of weights, compared before a server is given them: SGLang ends when it meets one that does not fit.

The engine asks for each update. Headers of safetensors files are read here as they are, so that torch is not needed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentr1_core.errors import EngineError

Shapes = dict[str, tuple[int, ...]]


def shapes_of_files(folder: Path) -> Shapes:
    """Name and shape of every tensor in a folder of safetensors files; empty where there are none.

    Raises:
        EngineError: A file cannot be read.
    """
    found: Shapes = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with file.open("rb") as source:
                header = json.loads(source.read(int.from_bytes(source.read(8), "little")))
            found |= {name: tuple(entry["shape"]) for name, entry in header.items() if name != "__metadata__"}
        except (OSError, ValueError, KeyError, TypeError, MemoryError, OverflowError) as error:
            raise EngineError(f"'{file}' is no safetensors file: {type(error).__name__}: {error}") from error
    return found


def shapes_of_tensors(tensors: Mapping[str, Any]) -> Shapes:
    """Name and shape of every tensor."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def check_shapes(known: Shapes, new: Shapes) -> None:
    """Refuse weights of another shape than those the server has.

    Raises:
        EngineError: Naming the first that differs.
    """
    for name, shape in new.items():
        if known.get(name, shape) != shape:
            raise EngineError(
                f"The new weights have '{name}' in the shape {shape}; the model has it in {known[name]}.",
                "Give weights of the model that the server was started with.",
            )
