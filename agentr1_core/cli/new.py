"""``agentr1 new``: a complete plugin package to begin with."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from agentr1_core.errors import ConfigError
from agentr1_core.scaffold import KINDS, new_project
from agentr1_core.scaffold.names import names_for

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


def new(kind: str, name: str, plugins: PluginManager, *, folder: Path | None = None) -> None:
    """Write the package and say what to do with it.

    Raises:
        ConfigError: The kind or the name cannot be used, or there is something in the folder.
    """
    if kind in KINDS and names_for(name).package in plugins.names(kind):
        raise ConfigError(f"A {kind} named '{name}' is on offer already.", "Choose another name.")
    target = new_project(kind, name, folder)
    steps = (f"cd {target}", "pip install -e '.[test]'", "pytest", "agentr1 plugins")
    print(f"A new {kind} is in {target}. Try it:\n")
    print("\n".join(f"  {step}" for step in steps))
