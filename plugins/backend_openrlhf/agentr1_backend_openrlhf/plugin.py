"""What this distribution offers to agentr1: the backend ``openrlhf``, and the engine ``openrlhf`` inside it.

The plugin manager imports this module at discovery; it never imports torch, Ray or OpenRLHF.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentr1_core.plugins import hookimpl

if TYPE_CHECKING:
    import typer

agentr1_api_version = 1


@hookimpl
def agentr1_backends() -> dict[str, str]:
    """The backend's class, imported at use."""
    return {"openrlhf": "agentr1_backend_openrlhf.backend:OpenRLHFBackend"}


@hookimpl
def agentr1_engines() -> dict[str, str]:
    """OpenRLHF's own vLLM engines, which only its launches have."""
    return {"openrlhf": "agentr1_backend_openrlhf.own_engine:OpenRLHFEngine"}


@hookimpl
def agentr1_cli(app: typer.Typer) -> None:
    """``agentr1 openrlhf-command``, which prints the launch of a run file."""
    from agentr1_backend_openrlhf.command.cli import add_commands

    add_commands(app)
