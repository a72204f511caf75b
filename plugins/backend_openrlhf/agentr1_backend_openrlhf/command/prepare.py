"""The folder of a run that somebody else starts: the resolved run file and the prompts in it, and the launch to print.

``agentr1 openrlhf-command`` calls ``prepare``; it makes the folder just as ``agentr1 train`` would.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentr1_backend_openrlhf.command.launch import Launch, launch_of
from agentr1_backend_openrlhf.prompts import write_prompts
from agentr1_core.cli.arguments import split_arguments
from agentr1_core.config import load_config
from agentr1_core.errors import AgentR1Error, ConfigError
from agentr1_core.job import build_job, cautions
from agentr1_core.run_folder import RunFolder

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


def prepare(
    arguments: Sequence[str],
    plugins: PluginManager,
    *,
    run_dir: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
) -> Launch:
    """Make the run's folder and the launch that uses it.

    Raises:
        AgentR1Error: Anything about the run file, the data or the plugins.
    """
    run, overrides = split_arguments(arguments)
    config = load_config(run, overrides, plugins)
    if config.backend.name.rpartition(":")[2] != "openrlhf":
        raise ConfigError(
            f"The run file trains with backend '{config.backend.name}', which is not launched by OpenRLHF.",
            "Set `backend: openrlhf`, or start the run with `agentr1 train`.",
        )
    for caution in cautions(config):
        print(f"Caution: {caution}", file=sys.stderr)
    folder = RunFolder.create(config, path=run_dir, resume=resume, overwrite=overwrite)
    try:
        job = build_job(config, plugins, folder.path, resume=resume)
        plugins.get("backend", config.backend.name)().check(job)
        launch = launch_of(job)
        files = write_prompts(job)
    except AgentR1Error:
        if not resume and not overwrite and folder.is_only_begun:
            shutil.rmtree(folder.path)  # nothing was prepared: leave no half-made folder behind
        raise
    said = f"{len(job.train_tasks)} tasks, {job.updates} updates of {job.prompts_per_update} prompts"
    print(f"Prepared {folder.path}: {said}, in {files.train.name}", file=sys.stderr)
    return launch
