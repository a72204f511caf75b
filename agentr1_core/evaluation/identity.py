"""What must stay the same for attempts to belong to one evaluation: the model, the seed, and how episodes are played.

``agentr1 eval --resume`` compares it with what the folder was begun with. How many tasks and attempts there are, how
many run at once and how patient the engine is may change.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr1_core.config import RunConfig

#: Bytes read of a weight file: this many at each of this many places; smaller files are read whole.
_CHUNK, _PLACES = 1 << 16, 64
_WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf")
_OTHERS = (".json", ".jinja", ".txt", ".model")
#: Settings that say how long to wait and how often to ask again, by the project's naming.
_PATIENCE = re.compile(r"_s$|^(retries|max_restarts|port)$")
_SECTIONS = (
    *("data", "recipe", "renderer", "env", "flow", "tools"),
    *("context", "reward", "sampling", "evaluation", "rollout"),
)
_FREE = {
    "evaluation": {"every"},
    "rollout": {"concurrency", "min_group_size", "engine_retries", "retry_delay_s"},
    "data": {"train_size", "eval_size", "shuffle"},
}


@dataclass(frozen=True, slots=True)
class Identity:
    """Dotted names and plain values."""

    values: Mapping[str, Any]

    def differences(self, begun: Identity) -> list[str]:
        """What is otherwise than in the evaluation that was begun, each in a few words."""
        names = dict.fromkeys((*begun.values, *self.values))
        return [
            f"{name} was {_shown(begun.values.get(name))} and is {_shown(self.values.get(name))}"
            for name in names
            if begun.values.get(name) != self.values.get(name)
        ]


def identify(config: RunConfig, split: str, model: str) -> Identity:
    """The identity of an evaluation.

    Args:
        config: The run file.
        split: Whose tasks are played.
        model: What plays; of a folder the content counts and not its name.
    """
    tree = config.model_dump(mode="json")
    engine = {name: value for name, value in tree["engine"].items() if not _PATIENCE.search(name)}
    values: dict[str, Any] = {"split": split, "seed": config.run.seed, "model": _model(model)}
    for name, section in (("engine", engine), *((name, tree[name]) for name in _SECTIONS)):
        values |= {key: value for key, value in _flat(name, section) if key.split(".")[-1] not in _FREE.get(name, ())}
    return Identity({name: value for name, value in values.items() if value is not None})


def _model(model: str) -> str:
    folder = Path(model)
    return f"folder with content {_digest(folder)}" if folder.is_dir() else model


def _digest(folder: Path) -> str:
    """Of names, sizes and content; of large weight files at evenly spaced places, which any training changes."""
    digest = hashlib.sha256()
    for file in sorted(folder.iterdir()):
        if not file.is_file() or file.suffix not in (*_WEIGHTS, *_OTHERS):
            continue
        size = file.stat().st_size
        digest.update(f"{file.name} {size}\n".encode())
        with file.open("rb") as content:
            if size <= _CHUNK * _PLACES:
                digest.update(content.read())
                continue
            for place in range(_PLACES):
                content.seek((size - _CHUNK) * place // (_PLACES - 1))
                digest.update(content.read(_CHUNK))
    return digest.hexdigest()[:16]


def _flat(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _flat(f"{name}.{key}", part)
    else:
        yield name, value


def _shown(value: Any) -> str:
    return "not set" if value is None else repr(value)
