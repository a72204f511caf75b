"""A launch of OpenRLHF: its environment and its command, to start or to print.

``OpenRLHFBackend`` starts it; ``agentr1 openrlhf-command`` prints it for people with a launcher of their own.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from agentr1_backend_openrlhf import RUN_VARIABLE
from agentr1_backend_openrlhf.command.translate import launch_arguments
from agentr1_core.backend import TrainingJob

#: The module that puts the step trainer in place and then is OpenRLHF's command line.
PROGRAMME = "agentr1_backend_openrlhf.train"


@dataclass(frozen=True, slots=True)
class Launch:
    """What to start, and with which environment variables beside those there are."""

    python: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]

    @property
    def command(self) -> list[str]:
        """Interpreter and arguments."""
        return [self.python, "-m", PROGRAMME, *self.arguments]

    def as_shell(self) -> str:
        """For a POSIX shell, one option a line."""
        said = [f"{name}={shlex.quote(value)}" for name, value in self.env.items()]
        return _lines([*said, self._programme(), *self._options()])

    def as_ray_job(self, address: str) -> str:
        """The same as a job for a Ray cluster that runs already.

        Args:
            address: Of the cluster's job server, such as ``http://127.0.0.1:8265``.
        """
        runtime = json.dumps({"env_vars": dict(self.env)})
        submit = f"ray job submit --address={shlex.quote(address)} --runtime-env-json={shlex.quote(runtime)} --"
        return _lines([submit, self._programme(), *self._options()])

    def _programme(self) -> str:
        return shlex.join(self.command[:3])

    def _options(self) -> list[str]:
        """Each option with its values."""
        grouped: list[list[str]] = []
        for word in self.arguments:
            if word.startswith("--"):
                grouped.append([word])
            else:
                grouped[-1].append(word)
        return [shlex.join(option) for option in grouped]


def launch_of(job: TrainingJob) -> Launch:
    """The launch of a job whose run file lies in its run folder.

    Raises:
        ConfigError: Something of the run file cannot be said to OpenRLHF.
    """
    run_file = job.run_dir.resolve() / "config.yaml"
    return Launch(
        python=str(Path(job.settings.get("python") or sys.executable).expanduser()),
        arguments=tuple(launch_arguments(job)),
        env=MappingProxyType({RUN_VARIABLE: str(run_file)}),
    )


def _lines(parts: list[str]) -> str:
    return " \\\n  ".join(parts)
