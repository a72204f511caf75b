"""The newest weights, kept so that a server that comes back can be given them again.

Engine plugins put every update here before they send it. Files are hard links where the file system allows it, so
nothing is copied in shared memory; a file that its writer has changed since is found out before it is used.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentr1_core.errors import EngineError

#: Where Linux keeps files in memory.
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class KeptFolder:
    """Files in a folder of their own."""

    path: Path
    #: Name, size and modification time of each file when it was put here.
    prints: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Weights of one version: whole ones as files or as tensors, an adapter on top of them, or both."""

    version: int
    #: Whole weights in the Hugging Face layout.
    whole: KeptFolder | None = None
    #: Whole weights by name, in place of files.
    tensors: Mapping[str, Any] | None = None
    #: A LoRA adapter in PEFT's layout on top of the whole weights, or of those a server started with.
    adapter: KeptFolder | None = None

    @property
    def folder(self) -> Path:
        """Folder of the whole weights.

        Raises:
            EngineError: They are no files.
        """
        if self.whole is None:
            raise EngineError(f"The weights of version {self.version} are no files in the Hugging Face layout.")
        return self.whole.path

    def check(self) -> None:
        """Raises ``EngineError`` when the files are not what they were."""
        for folder in (self.whole, self.adapter):
            if folder is not None and _prints(folder.path) != folder.prints:
                raise EngineError(
                    f"The weights of version {self.version} were overwritten after the engine had taken them.",
                    "Write each version into a new folder.",
                )


class WeightSpool:
    """A folder for the weights of one engine, emptied when it closes.

    Args:
        root: Where to make it; shared memory where there is such a thing, else the temporary folder.
    """

    def __init__(self, root: Path | None = None) -> None:
        if root is None and SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK):
            root = SHARED_MEMORY
        self.folder = Path(tempfile.mkdtemp(prefix="agentr1-engine-", dir=root))
        #: What a server that lost everything must be given.
        self.current: KeptWeights | None = None
        self._n = 0

    def keep(self, source: Path | None, version: int) -> KeptWeights:
        """Take the safetensors of a folder in the Hugging Face layout as the current weights.

        Raises:
            EngineError: There are none, or they cannot be read.
        """
        whole = self._take(source, version, ("*.safetensors", "*.safetensors.index.json"))
        self.current = KeptWeights(version, whole)
        return self.current

    def keep_tensors(self, tensors: Mapping[str, Any], version: int) -> KeptWeights:
        """Take tensors as the current weights. Whoever calls sees to it that nobody changes them."""
        self.current = KeptWeights(version, tensors=tensors)
        return self.current

    def keep_adapter(self, source: Path | None, version: int) -> KeptWeights:
        """Take a LoRA adapter in PEFT's layout, on top of the whole weights that are kept already.

        Returns:
            The adapter alone, for servers that have the whole weights; ``current`` has both.

        Raises:
            EngineError: It is none, or cannot be read.
        """
        wanted = ("adapter_model.safetensors", "adapter_config.json")
        adapter = self._take(source, version, wanted)
        if len(adapter.prints) < len(wanted):
            raise EngineError(f"No adapter_config.json in {source}.", "Save it with PEFT's `save_pretrained`.")
        self.current = replace(self.current or KeptWeights(version), version=version, adapter=adapter)
        return KeptWeights(version, adapter=adapter)

    def drop_old(self) -> None:
        """Remove all but the current weights."""
        now = self.current
        used = {folder.path for folder in (now.whole, now.adapter) if folder is not None} if now is not None else set()
        for folder in self.folder.glob("*-version-*"):
            if folder not in used:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder; idempotent."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _take(self, source: Path | None, version: int, patterns: Sequence[str]) -> KeptFolder:
        if source is None:
            raise EngineError("A weight source of files has no path.", "Set `WeightSource.path`.")
        files = [file for pattern in patterns for file in source.glob(pattern)] if source.is_dir() else []
        if not any(file.suffix == ".safetensors" for file in files):
            raise EngineError(f"No safetensors files in {source}.", "Save it with `save_pretrained`.")
        self._n += 1
        target = self.folder / f"{self._n}-version-{version}"
        try:
            target.mkdir()
            for file in files:
                _link_or_copy(file, target / file.name)
        except OSError as error:
            shutil.rmtree(target, ignore_errors=True)
            raise EngineError(f"The weights in {source} could not be kept in {target}: {error}") from error
        return KeptFolder(target, _prints(target))


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def _prints(folder: Path) -> tuple[tuple[str, int, int], ...]:
    states = [(file.name, file.stat()) for file in sorted(folder.iterdir())]
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)
