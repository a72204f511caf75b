"""The launch as a process: started with its log, watched until its deadline, and gone on every path.

``OpenRLHFBackend`` uses it. It runs as the core runs servers, so that it also ends with a starter that was killed;
Ray's processes belong to the launch's group and end with it.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from pathlib import Path
from types import TracebackType

from agentr1_backend_openrlhf.command import Launch
from agentr1_core.blocking import BlockingLoop
from agentr1_core.errors import PluginError
from agentr1_core.serving.process import ServerProcess

#: Seconds between two looks at the launch.
POLL_S = 0.5
#: Bytes of the log, at its end, in which an error is looked for.
_READ_BACK = 2**20
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
        self._process = ServerProcess(launch.command, {**os.environ, **launch.env}, log)
        self._deadline = 0.0
        self._begin = 0

    def __enter__(self) -> LaunchProcess:
        if shutil.which(self._launch.python) is None:
            raise PluginError(
                f"OpenRLHF cannot be started: there is no programme '{self._launch.python}'.",
                "Name the interpreter of an environment that has OpenRLHF and agentr1 under `backend.python`.",
            )
        self._begin = self._log.stat().st_size if self._log.is_file() else 0
        self._process.start()
        self._deadline = time.monotonic() + self._timeout_s
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop = BlockingLoop()
        try:
            loop.run(self._process.stop())
        finally:
            loop.close()

    def runs(self) -> bool:
        """Whether it still runs; waits a moment.

        Raises:
            PluginError: Its deadline has passed.
        """
        if not self._process.runs:
            return False
        if time.monotonic() > self._deadline:
            raise PluginError(
                f"The OpenRLHF launch was stopped after {self._timeout_s:.0f} seconds.\n{self._last_words()}",
                f"Read {self._log}; give it more time with `backend.timeout_s`.",
            )
        time.sleep(POLL_S)
        return True

    def check_success(self) -> None:
        """Raise if it failed.

        Raises:
            PluginError: With what it said last.
        """
        code = self._process.exit_code
        if code != 0:
            raise PluginError(
                f"The OpenRLHF launch ended with exit code {code}.\n{self._last_words()}", f"Read {self._log}."
            )

    def _last_words(self) -> str:
        """agentr1's own error where there is one, else the end of the log."""
        with self._log.open("rb") as log:
            log.seek(max(self._begin, log.seek(0, 2) - _READ_BACK))
            text = _COLOUR.sub("", log.read().decode("utf-8", errors="replace"))
        found = list(_OUR_ERROR.finditer(text))
        return found[-1]["text"].strip() if found else "\n".join(text.splitlines()[-20:])
