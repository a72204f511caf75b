"""The newest weights, kept so that a server that comes back can be given them again.

Engine plugins put every update here before they send it. Files are hard links where the file system allows it, so
nothing is copied in shared memory; a file that its writer has changed since is found out before it is used.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from agentr1_core.errors import EngineError

#: Where Linux keeps files in memory.
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """Weights of one version in a folder of their own."""

    folder: Path
    version: int
    #: Name, size and modification time of each file when it was put here.
    prints: tuple[tuple[str, int, int], ...]

    def check(self) -> None:
        """Raises ``EngineError`` when the files are not what they were."""
        if _prints(self.folder) != self.prints:
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
        self.current: KeptWeights | None = None
        self._n = 0

    def keep(self, source: Path | None, version: int) -> KeptWeights:
        """Take the safetensors of a folder in the Hugging Face layout as the current weights.

        Raises:
            EngineError: There are none, or they cannot be read.
        """
        if source is None:
            raise EngineError("A `file` weight source has no path.", "Set `WeightSource.path`.")
        files = [*source.glob("*.safetensors"), *source.glob("*.safetensors.index.json")] if source.is_dir() else []
        if not any(file.suffix == ".safetensors" for file in files):
            raise EngineError(f"No safetensors files in {source}.", "Save the model with `save_pretrained`.")
        self._n += 1
        target = self.folder / f"{self._n}-version-{version}"
        try:
            target.mkdir()
            for file in files:
                _link_or_copy(file, target / file.name)
        except OSError as error:
            shutil.rmtree(target, ignore_errors=True)
            raise EngineError(f"The weights in {source} could not be kept in {target}: {error}") from error
        self.current = KeptWeights(target, version, _prints(target))
        return self.current

    def drop_old(self) -> None:
        """Remove all but the current weights."""
        for folder in self.folder.glob("*-version-*"):
            if self.current is None or folder != self.current.folder:
                shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove the folder; idempotent."""
        shutil.rmtree(self.folder, ignore_errors=True)


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source.resolve(), target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)


def _prints(folder: Path) -> tuple[tuple[str, int, int], ...]:
    states = [(file.name, file.stat()) for file in sorted(folder.iterdir())]
    return tuple((name, state.st_size, state.st_mtime_ns) for name, state in states)
