"""``agentr1 config``: print the resolved run file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from agentr1_core.cli.arguments import split_arguments
from agentr1_core.config import dump, load_config

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager


def config(arguments: Sequence[str], plugins: PluginManager) -> None:
    """Print the run file with defaults and overrides filled in, as YAML that can be saved and run."""
    from rich.console import Console
    from rich.syntax import Syntax

    run, overrides = split_arguments(arguments)
    text = dump(load_config(run, overrides, plugins))
    console = Console()
    if console.is_terminal:
        console.print(Syntax(text, "yaml", background_color="default", word_wrap=True))
    else:
        print(text, end="")
