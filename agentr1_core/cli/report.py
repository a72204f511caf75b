"""``agentr1 report``: write the report of a run again, for example after an upgrade."""

from __future__ import annotations

from pathlib import Path

from agentr1_core.errors import ConfigError


def report(path: Path) -> None:
    """Write ``report.html`` from what the run folder holds.

    Raises:
        ConfigError: It is no run folder.
    """
    from rich.console import Console

    from agentr1_core.report import write_report
    from agentr1_core.run_folder import RunFolder

    folder = RunFolder(path)
    if not folder.metrics.is_file() and not folder.trajectories.is_file():
        raise ConfigError(
            f"'{path}' is no run folder: it has neither metrics.jsonl nor trajectories.jsonl.",
            "Name a folder under `runs`.",
        )
    Console().print(f"Wrote {write_report(folder)}", markup=False, soft_wrap=True)
