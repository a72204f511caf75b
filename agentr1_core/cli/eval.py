"""``agentr1 eval``: play every task of a split, some attempts each, and say how well the model does and how surely.

Each finished episode is written at once; ``--resume`` plays only what is missing.
"""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from agentr1_core.blocking import BlockingLoop
from agentr1_core.cli.eval_tables import show_summary
from agentr1_core.cli.eval_watch import EvalWatch
from agentr1_core.cli.trained import load_trained, untrained
from agentr1_core.config import RunConfig, dump
from agentr1_core.errors import AgentR1Error, ConfigError
from agentr1_core.evaluation import (
    Attempt,
    EvaluationFolder,
    Summary,
    default_grouping,
    group_of,
    identify,
    summarise,
)
from agentr1_core.evaluation.estimates import CONFIDENCE
from agentr1_core.job import EvaluationJob, build_evaluation
from agentr1_core.rollout import Play
from agentr1_core.run_folder import Recorder, RunFolder

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What the command line asks for."""

    split: str = "eval"
    #: Attempts at each task.
    k: int = 1
    #: Tasks at most.
    limit: int | None = None
    #: Column that groups tasks; found out when unset.
    group_by: str | None = None
    resume: bool = False
    overwrite: bool = False
    run_dir: Path | None = None
    as_json: bool = False
    #: Keep what was seen and said, too.
    trajectories: bool = True
    #: Where progress and tables go; JSON goes to standard output.
    console: Console = field(default_factory=Console)


def evaluate(arguments: Sequence[str], plugins: PluginManager, wanted: Wanted) -> bool:
    """Play what is missing and print the summary; whether no episode failed.

    Raises:
        AgentR1Error: Anything about the run file, the data, the plugins or the folder.
        KeyboardInterrupt: Ctrl-C; what was finished is kept.
    """
    config = load_trained(arguments, plugins)
    suffix = "eval" if wanted.split == "eval" else f"eval-{wanted.split}"
    config = config.model_copy(update={"run": config.run.model_copy(update={"name": f"{config.run.name}-{suffix}"})})
    folder = _folder(config, wanted)
    try:
        job = build_evaluation(
            config, plugins, folder.path, split=wanted.split, limit=wanted.limit, k=wanted.k, resume=wanted.resume
        )
        kept = EvaluationFolder(folder)
        kept.begin(identify(config, wanted.split, job.model))
        column = _grouping(job, wanted)
        for caution in (*untrained(arguments), *job.cautions):
            wanted.console.print(Text.assemble(("Caution: ", "bold yellow"), caution), soft_wrap=True)
        with kept:
            folder.config.write_text(dump(config), encoding="utf-8")
            seconds = _play_missing(job, kept, plugins, wanted)
            attempts = _wanted_attempts(job, kept, wanted)
    except AgentR1Error:
        if not wanted.resume and not wanted.overwrite and not folder.read_results():
            shutil.rmtree(folder.path)  # nothing was played: leave no half-made folder behind
        raise
    return _report(config, job, kept, attempts, column, wanted, seconds)


def _folder(config: RunConfig, wanted: Wanted) -> RunFolder:
    """A new folder, or that of the evaluation to go on with or to replace; never that of another run."""
    if wanted.resume:
        folder = RunFolder.existing(config, path=wanted.run_dir)
    elif wanted.overwrite:
        folder = RunFolder(wanted.run_dir or Path(config.run.dir) / config.run.name)
    else:
        return RunFolder.create(config, path=wanted.run_dir)
    if not folder.evaluation.is_file() and not folder.is_only_begun:
        raise ConfigError(
            f"'{folder.path}' holds something else than an evaluation.", "Name another --run-dir, or leave it out."
        )
    if wanted.resume:
        return folder
    if folder.results.is_file():
        with EvaluationFolder(folder):  # refuses one that another process plays into
            pass
    return RunFolder.create(config, path=folder.path, overwrite=True)


def _grouping(job: EvaluationJob, wanted: Wanted) -> str | None:
    """The column that groups tasks; ``None`` for no groups."""
    tasks = list(job.tasks.values())
    column = wanted.group_by
    if column is None:
        return default_grouping(tasks)
    if all(group_of(task, column) is None for task in tasks):
        there = dict.fromkeys(name for task in tasks for name in (*task, *task.extra_info))
        raise ConfigError(f"--group-by is '{column}', which no task has.", f"Tasks have: {', '.join(there)}.")
    return column


def _play_missing(job: EvaluationJob, kept: EvaluationFolder, plugins: PluginManager, wanted: Wanted) -> float:
    """Play attempts that are not there, or that failed before; the seconds it took."""
    done = {place for place, attempt in kept.read().items() if not attempt.failed}
    plays = [job.play(key, number) for key in job.tasks for number in range(wanted.k) if (key, number) not in done]
    if not plays:
        return 0.0
    recorder = Recorder(kept.folder) if wanted.trajectories else None
    start = time.monotonic()
    watch = EvalWatch(job, kept, recorder, wanted.console, n_plays=len(plays), n_done=len(job.tasks) * wanted.k)
    plugins.register(watch, "evaluation")
    try:
        with watch:
            _play(job, plays)
    finally:
        plugins.unregister("evaluation")
        if recorder is not None:
            recorder.close()
    return time.monotonic() - start


def _play(job: EvaluationJob, plays: Sequence[Play]) -> None:
    loop = BlockingLoop()

    async def play() -> None:
        try:
            await job.rollouts.collect_plays(plays, training=False, may_all_fail=True)
        finally:
            await job.rollouts.close()

    try:
        loop.run(play())
    finally:
        loop.close()


def _wanted_attempts(job: EvaluationJob, kept: EvaluationFolder, wanted: Wanted) -> list[Attempt]:
    """In the order of the tasks, without those of tasks or numbers that this call did not ask for."""
    attempts = kept.read()
    places = ((key, number) for key in job.tasks for number in range(wanted.k))
    return [attempts[place] for place in places if place in attempts]


def _report(
    config: RunConfig,
    job: EvaluationJob,
    kept: EvaluationFolder,
    attempts: Sequence[Attempt],
    column: str | None,
    wanted: Wanted,
    seconds: float,
) -> bool:
    folder = kept.folder
    groups = {key: group_of(task, column) if column else None for key, task in job.tasks.items()}
    summary = summarise(attempts, groups, k=wanted.k)
    kept.write_tasks(summary.tasks)
    told = _as_dict(config, job, summary, column, wanted, seconds)
    folder.write_summary(told)
    if wanted.as_json:
        print(json.dumps(told, ensure_ascii=False))
    else:
        show_summary(wanted.console, summary, job, folder, split=wanted.split, column=column)
    return summary.figures.failed == 0


def _as_dict(
    config: RunConfig, job: EvaluationJob, summary: Summary, column: str | None, wanted: Wanted, seconds: float
) -> dict[str, Any]:
    return {
        "model": job.model,
        "engine": config.engine.name,
        "split": wanted.split,
        "seed": config.run.seed,
        "k": wanted.k,
        "confidence": CONFIDENCE,
        "group_by": column,
        "seconds": round(seconds, 3),
        **summary.as_dict(),
    }
