"""The tasks of one split, whole: what ``agentr1 eval`` plays.

A run trains on some of ``train`` and watches some of ``eval``; here a split is everything it holds, and any split of
the recipe or of the data set can be named.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentr1_core.config.schema import RunConfig
from agentr1_core.dataset import load_tasks, split_names
from agentr1_core.errors import ConfigError, DataError
from agentr1_core.job.material import RECIPE_EVAL_SIZE, load_train_and_eval
from agentr1_core.recipe import Recipe
from agentr1_core.task import Task


@dataclass(frozen=True, slots=True)
class SplitTasks:
    """The tasks to play."""

    tasks: list[Task]
    #: Whether there may be more that were not asked for.
    partial: bool = False


def load_split(config: RunConfig, recipe: Recipe | None, split: str, *, limit: int | None = None) -> SplitTasks:
    """All tasks of a split, or the first ``limit``.

    ``train`` and ``eval`` are those of the run; another name is a split of ``data.eval`` (of ``data.train`` where that
    is not set), or of the recipe. Of a recipe that makes tasks without end, ``data.eval_size`` or 64 are taken.

    Raises:
        ConfigError, DataError: There is no such split (those on offer are named), or no task in it.
    """
    data = config.data
    shuffle = config.run.seed if data.shuffle else None
    if split == "train" and data.train is not None:
        return _cut(_train(config, recipe), limit)
    if split == "eval" and data.eval is not None:
        splits = (data.eval_split,) if data.eval_split else ("test", "validation", "train")
        return _cut(load_tasks(data.eval, split=splits, shuffle_seed=shuffle), limit)
    if split == "eval" and data.train is not None and recipe is None:
        return _cut(_held_out(config), limit)
    source = data.eval or data.train
    if split not in ("train", "eval") and source is not None:
        offers = split_names(source)
        if split in offers:
            return _cut(load_tasks(source, split=split, shuffle_seed=shuffle), limit)
        if recipe is None or split not in recipe.splits:
            own = ("train", "eval") if recipe is None else recipe.splits
            raise _unknown(split, f"data set '{source}'", tuple(dict.fromkeys((*own, *offers))))
    if recipe is None:
        raise ConfigError("The run file names no tasks.", "Set `data.train` to a data set, or `recipe` to a recipe.")
    return _of_recipe(config, recipe, split, limit)


def _of_recipe(config: RunConfig, recipe: Recipe, split: str, limit: int | None) -> SplitTasks:
    if split not in recipe.splits:
        raise _unknown(split, f"recipe '{recipe.name}'", recipe.splits)
    n_tasks = recipe.n_tasks(split)
    size = limit or n_tasks or config.data.eval_size or RECIPE_EVAL_SIZE
    tasks = list(recipe.tasks(split, size, config.run.seed))
    if not tasks:
        raise DataError(f"Recipe '{recipe.name}' gave no tasks for the split '{split}'.", "Name another split.")
    return SplitTasks(tasks, partial=n_tasks is None or len(tasks) < n_tasks)


def _train(config: RunConfig, recipe: Recipe | None) -> list[Task]:
    """What the run trains on, whatever its size: rows that it holds out stay out."""
    whole = config.model_copy(update={"data": config.data.model_copy(update={"train_size": None})})
    return load_train_and_eval(whole if _holds_out_nothing(config, recipe) else config, recipe)[0]


def _holds_out_nothing(config: RunConfig, recipe: Recipe | None) -> bool:
    return config.data.eval is not None or recipe is not None or not config.data.eval_size


def _held_out(config: RunConfig) -> list[Task]:
    held_out = load_train_and_eval(config, None)[1]
    if not held_out:
        raise ConfigError(
            "The run has no held-out tasks: neither `data.eval` nor `data.eval_size` is set.",
            "Set `data.eval` to a data set, or say --split train.",
        )
    return held_out


def _cut(tasks: list[Task], limit: int | None) -> SplitTasks:
    return SplitTasks(tasks[:limit], partial=limit is not None and limit < len(tasks))


def _unknown(split: str, where: str, offers: tuple[str, ...]) -> ConfigError:
    return ConfigError(f"--split is '{split}', which the {where} does not have.", f"Say one of: {', '.join(offers)}.")
