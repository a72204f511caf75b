"""What a run is made of: its tasks, its model and its demonstrations, from files or from the recipe.

The job builder calls these functions once. They load and write files, and never train.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentr1_core.backend import WarmStart
from agentr1_core.config.schema import RunConfig
from agentr1_core.dataset import load_rows, load_tasks
from agentr1_core.errors import ConfigError, DataError
from agentr1_core.recipe import Recipe
from agentr1_core.task import Task

#: Tasks taken from a recipe when the run file does not say how many.
RECIPE_TRAIN_SIZE = 1024
RECIPE_EVAL_SIZE = 64


def load_train_and_eval(config: RunConfig, recipe: Recipe | None) -> tuple[list[Task], list[Task]]:
    """The tasks to train on, and the held-out ones (possibly none).

    Raises:
        ConfigError: The run file names neither data nor a recipe.
        DataError: A data set is missing, malformed or empty.
    """
    data = config.data
    seed = config.run.seed
    shuffle = seed if data.shuffle else None
    if data.train is not None:
        held_out = data.eval_size or 0 if data.eval is None and recipe is None else 0
        limit = None if data.train_size is None else data.train_size + held_out
        tasks = load_tasks(data.train, split=data.train_split, limit=limit, shuffle_seed=shuffle)
        if held_out >= len(tasks):
            raise DataError(
                f"`data.eval_size` holds out {held_out} tasks, but '{data.train}' has only {len(tasks)}.",
                "Lower `data.eval_size`, or name a data set of its own under `data.eval`.",
            )
        cut = len(tasks) - held_out
        train, held = tasks[:cut], tasks[cut:]
    elif recipe is not None:
        train = _from_recipe(recipe, "train", data.train_size or RECIPE_TRAIN_SIZE, seed)
        held = []
    else:
        raise ConfigError("The run file names no tasks.", "Set `data.train` to a data set, or `recipe` to a recipe.")
    if data.eval is not None and data.eval_size != 0:
        splits = (data.eval_split,) if data.eval_split else ("test", "validation", "train")
        held = load_tasks(data.eval, split=splits, limit=data.eval_size, shuffle_seed=shuffle)
    elif recipe is not None and data.eval_size != 0:
        held = _from_recipe(recipe, "eval", data.eval_size or RECIPE_EVAL_SIZE, seed)
    return train, held


def find_model(config: RunConfig, recipe: Recipe | None, run_dir: Path, *, resume: bool = False) -> str:
    """Hub id or folder of the model; a recipe's own is written to ``run_dir/base_model`` first.

    Raises:
        ConfigError: No model is named, or the folder named does not exist.
    """
    model = config.model
    if model is None:
        own = "`model: recipe` for the recipe's own, or " if recipe is not None else ""
        raise ConfigError("The run file names no model.", f"Set {own}`model` to a hub id or folder (or `--model ...`).")
    if model != "recipe":
        return _existing(model)
    if recipe is None:
        raise ConfigError("`model: recipe` needs a recipe.", "Set `recipe`, or name a hub id or folder.")
    folder = run_dir / "base_model"
    if resume and (folder / "config.json").is_file():
        return str(folder)
    folder.mkdir(parents=True, exist_ok=True)
    return str(recipe.base_model(folder, config.run.seed))


def find_warm_start(config: RunConfig, recipe: Recipe | None) -> WarmStart | None:
    """The warm start that the run file asks for, or ``None``.

    Raises:
        ConfigError: It wants demonstrations that nobody has.
    """
    warm = config.warm_start
    wanted = warm.when == "always" or (warm.when == "scratch" and config.model == "recipe")
    if not wanted or (warm.demonstrations is None and warm.when == "scratch"):
        return None
    rows: Sequence[Mapping[str, Any]]
    if isinstance(warm.demonstrations, str):
        rows = [row for _, row in load_rows(warm.demonstrations, columns=("prompt", "completion"))]
    elif warm.demonstrations is None:
        raise ConfigError("`warm_start.when` is 'always', but there are no demonstrations.", _DEMONSTRATIONS_MEND)
    else:
        rows = [] if recipe is None else recipe.demonstrations(warm.demonstrations, config.run.seed)
        if not rows:
            who = "no recipe is set" if recipe is None else f"recipe '{recipe.name}' has none"
            raise ConfigError(
                f"`warm_start` wants {warm.demonstrations} demonstrations, but {who}.", _DEMONSTRATIONS_MEND
            )
    return WarmStart(demonstrations=rows, settings=warm.settings)


_DEMONSTRATIONS_MEND = "Set `warm_start.demonstrations` to a data set of prompt and completion, or `when: never`."


def _from_recipe(recipe: Recipe, split: Any, size: int, seed: int) -> list[Task]:
    tasks = list(recipe.tasks(split, size, seed))
    if not tasks and split == "train":
        raise DataError(f"Recipe '{recipe.name}' gave no tasks for the split '{split}'.", "Raise `data.train_size`.")
    return tasks


def _existing(model: str) -> str:
    """A folder that is written like one must be there; anything else may be a hub id."""
    path = Path(model).expanduser()
    if path.is_dir():
        return str(path)
    if path.is_file():
        raise ConfigError(f"`model`: '{model}' is a file.", "Name the model's folder, or a hub id.")
    looks_like_path = model.startswith((".", "/", "~")) or model.count("/") > 1
    if looks_like_path:
        names = [entry.name for entry in path.parent.iterdir()] if path.parent.is_dir() else []
        near = difflib.get_close_matches(path.name, names, n=2, cutoff=0.5)
        mend = f"Did you mean {' or '.join(repr(str(path.parent / name)) for name in near)}?" if near else None
        raise ConfigError(f"`model`: there is no folder '{model}'.", mend or "Name an existing folder, or a hub id.")
    return model
