"""``agentr1 openrlhf-report``: the figures and the report of a run that somebody else's launcher started.

``agentr1 train`` writes them while it follows its launch. A launch of one's own leaves what it has to tell in the run's
folder, and this command makes of it what a run folder otherwise holds, while the launch runs or after it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agentr1_backend_openrlhf.events import EVENTS, EventReader
from agentr1_backend_openrlhf.told import Told
from agentr1_core.cli.train import summary_of, whole_ledger
from agentr1_core.config import load_config
from agentr1_core.errors import ConfigError
from agentr1_core.plugins import PluginManager
from agentr1_core.run_folder import Recorder, RunFolder


def report(run_dir: Path) -> str:
    """Write ``metrics.jsonl``, ``trajectories.jsonl``, the report and, once the run has ended, ``summary.json``.

    Returns:
        What was written, in one line.

    Raises:
        ConfigError: The launch has told nothing there.
    """
    folder = RunFolder(run_dir)
    events = run_dir / "openrlhf" / EVENTS
    if not events.is_file() or not folder.config.is_file():
        raise ConfigError(
            f"No OpenRLHF launch has told anything in '{run_dir}'.",
            "Name the folder that `agentr1 openrlhf-command` made, once its launch has begun to play.",
        )
    config = load_config(folder.config)
    for written in (folder.metrics, folder.trajectories):
        written.unlink(missing_ok=True)
    recorder, observers = Recorder(folder, config.report.kept_per_update), PluginManager()
    observers.register(recorder)
    told = Told(observers.hook, with_clock=True)
    try:
        told.tell(EventReader(events, from_start=True))
    finally:
        recorder.close()
    if told.is_over(run_dir):
        result = told.result(run_dir)
        result = replace(result, ledger=whole_ledger(folder, result.ledger))
        folder.write_summary(summary_of(config, result, told.seconds))
    from agentr1_core.report import write_report

    path = write_report(folder, shown=config.report.trajectories)
    state = "ended" if told.is_over(run_dir) else "goes on, or was stopped"
    return f"{told.updates} of {config.algorithm.updates} updates; the run {state}. Wrote {path}"
