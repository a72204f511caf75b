"""Which model a command plays with: of a run folder the trained one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from agentr1_core.cli.arguments import split_arguments
from agentr1_core.config import RunConfig, load_config

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


def load_trained(arguments: Sequence[str], plugins: PluginManager) -> RunConfig:
    """The configuration; of a run folder with its checkpoint as the model, unless another model is named.

    Raises:
        ConfigError: As for ``load_config``.
    """
    run, overrides = split_arguments(arguments)
    trained = Path(run) / "checkpoint"
    if trained.is_dir() and not any(key == "model" for key, _ in overrides):
        overrides.append(("model", str(trained)))
    return load_config(run, overrides, plugins)


def untrained(arguments: Sequence[str]) -> tuple[str, ...]:
    """The caution for a run folder whose trained model is not there."""
    run, overrides = split_arguments(arguments)
    named = any(key == "model" or key.partition(".")[0] == "engine" for key, _ in overrides)
    if not Path(run).is_dir() or (Path(run) / "checkpoint").is_dir() or named:
        return ()
    return (f"'{run}' has no checkpoint: what plays is the model that its config.yaml names.",)
