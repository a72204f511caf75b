"""What a sandbox for the ``python`` tool must do, and the limits it is given.

``PythonTool`` starts one sandbox per run and gives it the code of every call. A sandbox never runs code outside its
own isolation: where that is missing, ``start`` refuses.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from agentr1_core.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Limits:
    """What one call may use.

    Raises:
        ConfigError: A limit is not positive.
    """

    #: Seconds of running time.
    time_s: float = 5.0
    #: Megabytes (of 2**20 bytes) of memory; in ``bubblewrap`` of each process.
    memory_mb: int = 256
    #: Bytes of printed output that are kept; a programme that prints more is stopped.
    output_bytes: int = 64_000

    def __post_init__(self) -> None:
        for name in ("time_s", "memory_mb", "output_bytes"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"`{name}` of the python tool is {getattr(self, name)}.", "Give a positive number.")


@dataclass(frozen=True, slots=True)
class Run:
    """What came of one programme."""

    #: What it printed, then the value of a last line that is an expression.
    output: str
    #: Why it failed, in Python's words; ``None`` when it ran to its end.
    error: str | None = None


class Sandbox(ABC):
    """Runs programmes of unknown intent."""

    @abstractmethod
    async def start(self) -> None:
        """Prove that the isolation works here.

        Raises:
            PluginError: It does not; the mend says what to install or allow.
        """

    @abstractmethod
    async def run(self, code: str) -> Run:
        """Run one programme from nothing; no state outlives it. Many may run at once."""

    @abstractmethod
    async def close(self) -> None:
        """Stop whatever still runs; harmless without a start and a second time."""
