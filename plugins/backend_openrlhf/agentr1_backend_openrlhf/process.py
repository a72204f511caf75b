"""The launch as a process: started with its log, watched until its deadline, and gone on every path.

``OpenRLHFBackend`` uses it. Ray's processes belong to the launch's session and end with it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import IO

from agentr1_backend_openrlhf.command import Launch
from agentr1_core.errors import PluginError

#: Seconds between two looks at the launch, and for it to end when it is told to.
POLL_S, GRACE_S = 0.5, 30.0
_OUR_ERROR = re.compile(r"(?:agentr1_core\.errors\.\w+: |^Error: )(?P<text>.+?)(?=\n(?! *->)|\Z)", re.S | re.M)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class LaunchProcess:
    """A running launch; a context manager.

    Args:
        launch: What to start.
        log: Its output is appended here.
        timeout_s: Seconds it may take.

    Raises:
        PluginError: It cannot be started.
    """

    def __init__(self, launch: Launch, log: Path, timeout_s: float) -> None:
        self._launch, self._log, self._timeout_s = launch, log, timeout_s
        self._process: subprocess.Popen[bytes] | None = None
        self._output: IO[bytes] | None = None
        self._deadline = 0.0
        self._begin = 0

    def __enter__(self) -> LaunchProcess:
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._output = self._log.open("ab")
        self._begin = self._output.tell()
        try:
            self._process = subprocess.Popen(
                self._launch.command,
                env={**os.environ, **self._launch.env},
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            self._output.close()
            raise PluginError(
                f"OpenRLHF cannot be started: {error}.",
                "Name the interpreter of an environment that has OpenRLHF and agentr1 under `backend.python`.",
            ) from error
        self._deadline = time.monotonic() + self._timeout_s
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._end()
        finally:
            if self._output is not None:
                self._output.close()

    def runs(self) -> bool:
        """Whether it still runs; waits a moment.

        Raises:
            PluginError: Its deadline has passed.
        """
        if self._process is None:
            raise RuntimeError("The launch was not entered.")
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(POLL_S)
            return False
        if time.monotonic() > self._deadline:
            raise PluginError(
                f"The OpenRLHF launch was stopped after {self._timeout_s:.0f} seconds.\n{self._last_words()}",
                f"Read {self._log}; give it more time with `backend.timeout_s`.",
            )
        return True

    def check_success(self) -> None:
        """Raise if it failed.

        Raises:
            PluginError: With what it said last.
        """
        code = None if self._process is None else self._process.poll()
        if code != 0:
            raise PluginError(
                f"The OpenRLHF launch ended with exit code {code}.\n{self._last_words()}", f"Read {self._log}."
            )

    def _end(self) -> None:
        process = self._process
        if process is None:
            return
        for how, grace in ((signal.SIGTERM, GRACE_S), (signal.SIGKILL, GRACE_S)):
            # The session outlives its first process as long as any of Ray's is left.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, how)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(grace)
                if how is signal.SIGKILL or not _session_exists(process.pid):
                    return

    def _last_words(self) -> str:
        """agentr1's own error where there is one, else the end of the log."""
        text = self._log.read_bytes()[self._begin :].decode("utf-8", errors="replace")
        text = _COLOUR.sub("", text)
        found = list(_OUR_ERROR.finditer(text))
        if found:
            return found[-1]["text"].strip()
        return "\n".join(text.splitlines()[-20:])


def _session_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True
