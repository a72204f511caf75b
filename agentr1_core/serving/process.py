"""A server process: started, logged to a file, and ended on every path.

``ManagedServer`` owns one at a time. The process runs under ``guard.py``, so that it ends with the process that
started it, even one that was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from agentr1_core.errors import EngineError
from agentr1_core.serving import guard

#: Seconds that ending may take before the guard itself is killed.
_END_S = guard.GRACE_S + 5.0


def free_port() -> int:
    """A port of the loopback interface that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def address_towards(url: str) -> str:
    """This machine's address on the way to a server."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((urlsplit(url).hostname or "", 9))  # sends nothing
        address: str = probe.getsockname()[0]
    return address


class ServerProcess:
    """One run of a server.

    Args:
        command: Interpreter and arguments.
        env: The whole environment of the process.
        log: File that standard output and error are appended to; its folder is made.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        self._command = list(command)
        self._env = dict(env)
        self.log = log
        self._process: subprocess.Popen[bytes] | None = None
        self._log_begin = 0

    def start(self) -> None:
        """Start it and return at once.

        Raises:
            EngineError: There is no such program, or it cannot be run.
        """
        self.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.log.open("ab") as sink:
                self._log_begin = sink.tell()  # what stands before is of an earlier run
                self._process = subprocess.Popen(
                    [sys.executable, guard.__file__, *self._command],
                    stdin=subprocess.PIPE,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env=self._env,
                    start_new_session=True,  # Ctrl-C goes to the trainer, which ends the server in its own time
                )
        except OSError as error:
            raise EngineError(f"The server could not be started: {error}") from error

    @property
    def exit_code(self) -> int | None:
        """How it ended; ``None`` while it runs."""
        return None if self._process is None else self._process.poll()

    @property
    def runs(self) -> bool:
        """Whether it was started and has not ended."""
        return self._process is not None and self._process.poll() is None

    def last_line(self) -> str:
        """The newest line of the log that says something."""
        lines = [line.strip() for line in self._tail().splitlines() if line.strip()]
        return lines[-1] if lines else ""

    def cause(self) -> str:
        """The line of the log that most likely says why it ended."""
        lines = [line.strip() for line in self._tail().splitlines() if line.strip()]
        # Lines that point to a cause further up are not the cause.
        errors = [line for line in lines if "Error: " in line and " above" not in line and "(above)" not in line]
        return errors[-1] if errors else self.last_line()

    async def stop(self) -> None:
        """End it and all it started; idempotent."""
        process = self._process
        if process is None:
            return
        await asyncio.to_thread(_end, process)

    def _tail(self, n_bytes: int = 131_072) -> str:
        with contextlib.suppress(OSError), self.log.open("rb") as source:
            source.seek(0, os.SEEK_END)
            source.seek(max(self._log_begin, source.tell() - n_bytes))
            return source.read().decode(errors="replace")
        return ""


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None:
        with contextlib.suppress(OSError):
            process.stdin.close()
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
