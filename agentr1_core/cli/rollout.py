"""``agentr1 rollout``: play episodes without training, show one, and count them all."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from agentr1_core.blocking import BlockingLoop
from agentr1_core.cli.show import show_trajectory
from agentr1_core.cli.trained import load_trained
from agentr1_core.config import RunConfig
from agentr1_core.errors import ConfigError
from agentr1_core.job import RolloutJob, build_rollouts
from agentr1_core.metrics import describe_collection
from agentr1_core.rollout import Collection, Play
from agentr1_core.run_folder import Recorder, RunFolder

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


def rollout(
    arguments: Sequence[str], plugins: PluginManager, *, n: int = 8, split: str = "eval", run_dir: Path | None = None
) -> None:
    """Play ``n`` episodes; for a run folder with a checkpoint, with the trained model.

    Raises:
        AgentR1Error: Anything about the run file, the data or the plugins; every episode failed.
    """
    if split not in ("eval", "train"):
        raise ConfigError(f"--split is '{split}'.", "Say eval or train.")
    config = load_trained(arguments, plugins)
    config = config.model_copy(update={"run": config.run.model_copy(update={"name": f"{config.run.name}-rollout"})})
    folder = RunFolder.create(config, path=run_dir)
    job = build_rollouts(config, plugins, folder.path, split=split)
    console = Console()
    with console.status(f"Playing {n} episodes with {job.model}"):
        collection = _play(job, n)
    recorder = Recorder(folder)
    recorder.keep((*collection.trajectories, *collection.failed), "rollout")
    recorder.close()
    _show(console, config, collection)
    console.print(f"All of them: {folder.trajectories}", markup=False, highlight=False, soft_wrap=True)


def _play(job: RolloutJob, n: int) -> Collection:
    """``n`` episodes, going through the tasks as often as it takes."""
    plays = [
        Play(task, f"rollout/{number}") for number, task in enumerate(itertools.islice(itertools.cycle(job.tasks), n))
    ]
    loop = BlockingLoop()

    async def play() -> Collection:
        try:
            return await job.rollouts.collect_plays(plays, training=False)
        finally:
            await job.rollouts.close()

    try:
        return loop.run(play())
    finally:
        loop.close()


def _show(console: Console, config: RunConfig, collection: Collection) -> None:
    best = max(collection.trajectories, key=lambda trajectory: (trajectory.ret, len(trajectory.steps)))
    show_trajectory(console, best)
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, value in describe_collection(collection).items():
        table.add_row(name, f"{value:g}" if value == round(value) else f"{value:.4g}")
    console.print(table)
