"""``agentr1 train``: from a run file to a trained model, a run folder and a report."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from agentr1_core.backend import TrainingBackend, TrainingJob, TrainingResult
from agentr1_core.cli.arguments import split_arguments
from agentr1_core.cli.progress import TrainProgress
from agentr1_core.config import RunConfig, load_config
from agentr1_core.errors import AgentR1Error, ConfigError
from agentr1_core.job import build_job, cautions
from agentr1_core.run_folder import Recorder, RunFolder

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


def train(
    arguments: Sequence[str],
    plugins: PluginManager,
    *,
    resume: bool = False,
    overwrite: bool = False,
    run_dir: Path | None = None,
) -> None:
    """Train and report.

    Raises:
        AgentR1Error: Anything about the run file, the data, the plugins or the run itself.
        KeyboardInterrupt: Ctrl-C; what was recorded is kept and reported.
    """
    run, overrides = split_arguments(arguments)
    config = load_config(run, overrides, plugins)
    console = Console()
    for caution in cautions(config):
        console.print(Text.assemble(("Caution: ", "bold yellow"), caution), soft_wrap=True)
    if int(os.environ.get("RANK", "0")) > 0:
        _train_as_worker(config, plugins, run_dir, resume)
        return
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and run_dir is None:
        raise ConfigError("A run on several processes needs one folder for all of them.", "Say --run-dir FOLDER.")
    folder = RunFolder.create(config, path=run_dir, resume=resume, overwrite=overwrite)
    try:
        job = build_job(config, plugins, folder.path, resume=resume)
        backend = _backend(config, plugins)
        backend.check(job)
        _run(config, plugins, folder, job, backend, console)
    except AgentR1Error:
        if not resume and not overwrite and folder.is_only_begun:
            shutil.rmtree(folder.path)  # nothing ran: leave no half-made folder behind
        raise


def _run(
    config: RunConfig,
    plugins: PluginManager,
    folder: RunFolder,
    job: TrainingJob,
    backend: TrainingBackend,
    console: Console,
) -> None:
    console.print(_announce(config, job, folder), markup=False, highlight=False, soft_wrap=True)
    recorder = Recorder(folder, config.report.kept_per_update)
    progress = TrainProgress(console, job.updates, _preparing(job))
    plugins.register(recorder, "run recorder")
    plugins.register(progress, "progress")
    start = time.monotonic()
    done = False
    try:
        with progress:
            result = backend.train(job)
        done = True
    finally:
        plugins.unregister("progress")
        plugins.unregister("run recorder")
        recorder.close()
        if not done:
            _report_what_there_is(config, folder, console)
    seconds = time.monotonic() - start
    if job.resume:
        result = replace(result, ledger=_whole_ledger(folder, result.ledger))
    folder.write_summary(_summary(config, result, seconds))
    report = None
    if config.report.enabled:
        from agentr1_core.report import write_report

        report = write_report(folder, shown=config.report.trajectories)
    console.print(_outcome(result, seconds, folder, report))


def _train_as_worker(config: RunConfig, plugins: PluginManager, run_dir: Path | None, resume: bool) -> None:
    """One of several processes but the first: it trains along and writes nothing."""
    if run_dir is None:
        raise ConfigError("A run on several processes needs one folder for all of them.", "Say --run-dir FOLDER.")
    if config.model == "recipe":
        raise ConfigError(
            "`model: recipe` writes a model when the run starts, which several processes would do at once.",
            "Name the model's folder, such as the base_model of an earlier run.",
        )
    job = build_job(config, plugins, run_dir, resume=resume)
    backend = _backend(config, plugins)
    backend.check(job)
    backend.train(job)


def _backend(config: RunConfig, plugins: PluginManager) -> TrainingBackend:
    backend: TrainingBackend = plugins.get("backend", config.backend.name)()
    return backend


def _report_what_there_is(config: RunConfig, folder: RunFolder, console: Console) -> None:
    """After an error or Ctrl-C: a report of the updates so far, unless there are none."""
    if not config.report.enabled or not folder.read_metrics():
        return
    from agentr1_core.report import write_report

    path = write_report(folder, shown=config.report.trajectories)
    console.print(f"Stopped. A report of the updates so far is in {path}", markup=False, soft_wrap=True)


def _announce(config: RunConfig, job: TrainingJob, folder: RunFolder) -> str:
    held_out = f", {len(job.eval_tasks)} held out" if job.eval_tasks else ""
    plays = config.flow.name if config.flow is not None else config.env.name if config.env is not None else "tools"
    return (
        f"Training {job.model} on {len(job.train_tasks)} tasks{held_out} with '{plays}', "
        f"{config.algorithm.estimator.name} on {config.backend.name}. Run folder: {folder.path}"
    )


def _preparing(job: TrainingJob) -> str:
    if job.resume:
        return "Loading the checkpoint"
    steps = ["warm start"] if job.warm_start is not None else []
    steps += ["first evaluation"] if job.eval_tasks else []
    return " and ".join(steps).capitalize() or "Loading the model"


def _whole_ledger(folder: RunFolder, of_this_session: Mapping[str, int]) -> Mapping[str, int]:
    """The tokens of all updates of a resumed run, where its backend reports the ledger with each."""
    updates = folder.read_metrics()
    if not updates or any("ledger/sampled" not in row for row in updates):
        return of_this_session
    names = ("sampled", "trained", "masked", "dropped")
    return {name: int(sum(row.get(f"ledger/{name}", 0) for row in updates)) for name in names}


def _summary(config: RunConfig, result: TrainingResult, seconds: float) -> dict[str, Any]:
    from importlib.metadata import PackageNotFoundError, version

    try:
        agentr1 = version("agentr1")
    except PackageNotFoundError:
        agentr1 = "(not installed)"
    return {
        "success_before": result.success_before,
        "success_after": result.success_after,
        "seconds": round(seconds, 1),
        "updates": result.updates,
        "ledger": {name: int(result.ledger.get(name, 0)) for name in ("sampled", "trained", "masked", "dropped")},
        "model": config.model,
        "recipe": config.recipe.name if config.recipe is not None else None,
        "checkpoint": str(result.checkpoint),
        "version": agentr1,
    }


def _outcome(result: TrainingResult, seconds: float, folder: RunFolder, report: Path | None) -> Panel:
    lines: list[Text] = []
    if result.success_before is not None and result.success_after is not None:
        better = result.success_after > result.success_before
        lines.append(
            Text.assemble(
                "Success on held-out tasks: ",
                (f"{result.success_before:.3f}", "bold"),
                " before, ",
                (f"{result.success_after:.3f}", "bold green" if better else "bold yellow"),
                " after",
            )
        )
    ledger = result.ledger
    lines.append(Text(f"{result.updates} update{'s' * (result.updates != 1)} in {seconds:.0f} seconds"))
    lines.append(
        Text(
            f"Tokens: {ledger.get('sampled', 0):,} sampled = {ledger.get('trained', 0):,} trained "
            f"+ {ledger.get('masked', 0):,} masked + {ledger.get('dropped', 0):,} dropped"
        )
    )
    lines.append(Text(f"Model:  {result.checkpoint}"))
    lines.append(Text(f"Report: {report if report is not None else folder.path}"))
    return Panel(Text("\n").join(lines), title="Done", border_style="green", expand=False)
