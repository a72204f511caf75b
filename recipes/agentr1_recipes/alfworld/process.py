"""One game process: started, asked with a deadline, and ended on every path.

``GamePool`` owns several. The process runs ``worker.py`` under any interpreter that has ``alfworld``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentr1_core.errors import EnvError, PluginError
from agentr1_recipes.textgame.game import View

WORKER = Path(__file__).with_name("worker.py")
#: Longest line of an answer, in bytes.
_LONGEST = 1 << 22
INSTALL = "pip install 'agentr1-recipes[alfworld]', or name an interpreter that has it: `env.python`."


class ProcessDied(EnvError):
    """The process ended, or was ended since it did not answer in time; another one can take its place."""


class GameProcess:
    """A process that plays one game at a time.

    Args:
        python: The interpreter that has ``alfworld``; this one when ``None``.
        folder: Where it may put temporary files, and its log.
        name: Names its log.
        start_timeout_s: Seconds until it must be ready.
    """

    def __init__(self, python: str | None, folder: Path, name: str, *, start_timeout_s: float) -> None:
        self.python = python or sys.executable
        self.log = folder / f"{name}.log"
        self.start_timeout_s = start_timeout_s
        self._folder = folder
        self._process: asyncio.subprocess.Process | None = None
        self._asked = False

    @property
    def is_well(self) -> bool:
        """Whether it runs and owes no answer."""
        return self._process is not None and self._process.returncode is None and not self._asked

    async def start(self) -> Mapping[str, str]:
        """Start it and wait until it is ready.

        Returns:
            The versions of ``alfworld`` and ``textworld``.

        Raises:
            PluginError: The interpreter cannot be run, or has no ``alfworld`` that works.
            ProcessDied: It did not say that it is ready.
        """
        self._asked = True  # it owes its first line; whoever stops waiting for that leaves a process that is not well
        try:
            with self.log.open("ab") as log:
                self._process = await asyncio.create_subprocess_exec(
                    self.python,
                    "-s",
                    str(WORKER),
                    stdin=asyncio.subprocess.PIPE,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=log,
                    limit=_LONGEST,
                    env=self._environment(),
                    start_new_session=True,  # Ctrl-C goes to the trainer, which ends its processes itself
                )
        except OSError as error:
            raise PluginError(f"`env.python`: '{self.python}' cannot be run: {error}.", INSTALL) from error
        hello = await self._read(self.start_timeout_s, "be ready")
        if "error" in hello:
            raise PluginError(f"ALFWorld cannot be used with '{self.python}': {hello['error']}.", INSTALL)
        self._asked = False
        return hello

    async def load(self, game: str, timeout_s: float, *, expert: bool = False) -> tuple[View, str | None]:
        """Begin a game: its first view, and the expert's command where asked for.

        Raises:
            EnvError: The game cannot be loaded.
            ProcessDied: The process ended, or did not answer in time.
        """
        return _view(await self._ask({"do": "load", "game": game, "expert": expert}, timeout_s, f"load {game}"))

    async def command(self, command: str, timeout_s: float) -> tuple[View, str | None]:
        """What a command leads to; errors as for ``load``."""
        return _view(await self._ask({"do": "command", "command": command}, timeout_s, f"do '{command}'"))

    async def end(self) -> None:
        """End it; idempotent."""
        process = self._process
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        # Its pipes would be closed when the loop next runs, which may be never.
        transport = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()

    def _environment(self) -> dict[str, str]:
        """The trainer's, without what points its Python elsewhere, and with sets in the same order every time."""
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
        return kept | {"TMPDIR": str(self._folder), "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}

    async def _ask(self, request: Mapping[str, Any], timeout_s: float, what: str) -> Mapping[str, Any]:
        if not self.is_well or self._process is None or self._process.stdin is None:
            raise ProcessDied(f"The game process cannot {what}: it has ended or still owes an answer.")
        self._asked = True
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            await self._process.stdin.drain()
        except ConnectionError as error:
            raise await self._died(what) from error
        answer = await self._read(timeout_s, what)
        self._asked = False
        if "error" in answer:
            raise EnvError(f"ALFWorld cannot {what}: {answer['error']}.")
        return answer

    async def _read(self, timeout_s: float, what: str) -> Mapping[str, Any]:
        if self._process is None or self._process.stdout is None:
            raise ProcessDied(f"The game process cannot {what}: it was never started.")
        try:
            async with asyncio.timeout(timeout_s):
                line = await self._process.stdout.readline()
        except TimeoutError:
            await self.end()
            raise ProcessDied(
                f"The game process did not {what} within {timeout_s:g} s and was ended.",
                "Use fewer processes for the machine (`env.processes`), or raise `env.timeout_s`.",
            ) from None
        if not line.endswith(b"\n"):
            raise await self._died(what)
        answer: Mapping[str, Any] = json.loads(line)
        return answer

    async def _died(self, what: str) -> ProcessDied:
        await self.end()
        code = None if self._process is None else self._process.returncode
        lines = self.log.read_text(errors="replace").strip().splitlines() if self.log.is_file() else []
        said = f" Its last words: {lines[-1]}" if lines else ""
        return ProcessDied(f"The game process ended (exit code {code}) before it could {what}.{said}")


def _view(answer: Mapping[str, Any]) -> tuple[View, str | None]:
    view = View(answer["text"], tuple(answer["commands"]), answer["state"], answer["won"])
    return view, answer["expert"]
