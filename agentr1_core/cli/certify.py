"""``agentr1 certify``: measure on this machine that what is trained is what was sampled, and say so in a table.

It collects a few episodes with the run's own engine, model and task. Nothing is trained and no run folder is kept.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from agentr1_core.backend import FAULTS, TrainingBackend
from agentr1_core.certificate import Certificate, Check
from agentr1_core.cli.arguments import split_arguments
from agentr1_core.config import load_config
from agentr1_core.errors import ConfigError
from agentr1_core.job import build_job

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


def certify(
    arguments: Sequence[str],
    plugins: PluginManager,
    *,
    n_groups: int = 2,
    fault: str | None = None,
    as_json: bool = False,
) -> bool:
    """Print the certificate, on the first process; whether it holds.

    Raises:
        AgentR1Error: Anything about the run file, the data or the plugins.
    """
    if fault is not None and fault not in FAULTS:
        raise ConfigError(f"--fault is '{fault}'.", f"Say one of: {', '.join(FAULTS)}.")
    run, overrides = split_arguments(arguments)
    config = load_config(run, overrides, plugins)
    console = Console()
    with tempfile.TemporaryDirectory(prefix="agentr1-certify-") as folder:
        job = build_job(config, plugins, Path(folder))
        backend: TrainingBackend = plugins.get("backend", config.backend.name)()
        backend.check(job)
        found = backend.certify(job, n_groups=n_groups, fault=fault)
    if int(os.environ.get("RANK", "0")) > 0:
        return found.passed
    if as_json:
        print(json.dumps(found.as_dict()))
    else:
        _show(console, found)
    return found.passed


def _show(console: Console, found: Certificate) -> None:
    table = Table(box=None, pad_edge=False)
    for column, justify in (("check", "left"), ("measured", "right"), ("limit", "right"), ("", "left"), ("", "left")):
        table.add_column(column, justify="right" if justify == "right" else "left")
    for check in found.checks:
        table.add_row(check.name, _number(check.value), _limit(check), _verdict(check), check.note)
    console.print(table)
    console.print(", ".join(f"{name} {value}" for name, value in found.about.items()), markup=False, soft_wrap=True)
    failed = [check.name for check in found.checks if not check.passed]
    if failed:
        console.print(f"[bold red]Not certified.[/] Failed: {', '.join(failed)}", soft_wrap=True)
    else:
        console.print("[bold green]Certified.[/] What is trained is what was sampled.")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"


def _limit(check: Check) -> str:
    if check.limit is None:
        return ""
    return f"{'=' if check.exact else '<='} {check.limit:g}"


def _verdict(check: Check) -> str:
    if check.value is None:
        return "[dim]n/a[/]"
    if check.limit is None:
        return ""
    return "[green]pass[/]" if check.passed else "[bold red]FAIL[/]"
