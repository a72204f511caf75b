"""Build an evaluation: all tasks of a split, each known by its key, and the rollouts that play them.

``agentr1 eval`` plays with what ``build_evaluation`` returns, and so may a notebook.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentr1_core.config.schema import RunConfig
from agentr1_core.episode import ChatPolicy
from agentr1_core.evaluation import keyed
from agentr1_core.job.build import eval_sampling_params, find_recipe
from agentr1_core.job.offers import check_settings, find
from agentr1_core.job.rollouts import build_player
from agentr1_core.job.split import load_split
from agentr1_core.rollout import Play, Rollouts
from agentr1_core.task import Task

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


@dataclass(frozen=True, slots=True)
class EvaluationJob:
    """What is to be played."""

    rollouts: Rollouts
    #: Tasks by key, in their order.
    tasks: Mapping[str, Task]
    #: Folder, hub id, or its name at the service that answers.
    model: str
    #: What the reader should know before it starts.
    cautions: tuple[str, ...] = ()

    def play(self, key: str, attempt: int) -> Play:
        """One attempt; ``attempt_of`` finds the key and the number again in the trajectory.

        The sampling seed follows from both, so an attempt is the same in whatever company it is played.
        """
        return Play(self.tasks[key], f"eval/{key}", attempt)

    @staticmethod
    def attempt_of(trajectory_id: str) -> tuple[str, int]:
        """The task's key and the number of the attempt that a trajectory is."""
        _, key, attempt = trajectory_id.split("/")
        return key, int(attempt)


def build_evaluation(
    config: RunConfig,
    plugins: PluginManager,
    run_dir: Path,
    *,
    split: str = "eval",
    limit: int | None = None,
    k: int = 1,
    resume: bool = False,
) -> EvaluationJob:
    """All tasks of a split (or the first ``limit``) and rollouts that sample as in evaluation.

    Args:
        config: The run file.
        plugins: Where names are looked up.
        run_dir: Where a recipe's model is written.
        split: ``eval``, ``train`` or another of the recipe or the data set.
        limit: Tasks at most.
        k: Attempts at each task.
        resume: Take the recipe's model that lies in ``run_dir`` already.

    Raises:
        ConfigError, DataError, PluginError: As for ``build_job``; there is no such split.
    """
    # A mistake here is told before a data set is loaded.
    check_settings(find(plugins, "engine", config.engine.name, "engine.name"), config.engine.settings, "engine")
    recipe = find_recipe(config, plugins)
    chosen = load_split(config, recipe, split, limit=limit)
    sampling = eval_sampling_params(config)
    player = build_player(config, plugins, run_dir, chosen.tasks, sampling, recipe=recipe, resume=resume)
    said = []
    if k > 1 and sampling.temperature == 0:
        said.append(f"evaluation.sampling.temperature is 0: all {k} attempts at a task will be alike.")
    if recipe is not None and chosen.partial and limit is None:
        said.append(
            f"recipe '{recipe.name}' does not say how many tasks '{split}' has: {len(chosen.tasks)} are played. "
            "Say how many with --limit."
        )
    if isinstance(player.rollouts.policy, ChatPolicy) and config.rollout.max_context is not None:
        said.append(
            f"rollout.max_context is left to the service: the engine '{config.engine.name}' cannot count the tokens of "
            "a prompt before it is sent."
        )
    return EvaluationJob(player.rollouts, keyed(chosen.tasks), player.model, tuple(said))
