"""The commands for people with a launcher of their own: ``openrlhf-command`` and ``openrlhf-report``.

The first prints what ``agentr1 train`` would start, and that alone on standard output. Everything but the options is
imported when a command runs.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Optional

import typer

_PASS_THROUGH = {"ignore_unknown_options": True, "allow_interspersed_args": True}


def add_commands(app: typer.Typer) -> None:
    """Add ``openrlhf-command`` and ``openrlhf-report`` to the command line."""

    @app.command("openrlhf-command", context_settings=_PASS_THROUGH)
    def openrlhf_command(
        ctx: typer.Context,
        run: Annotated[
            list[str],
            typer.Argument(metavar="RUN", help="A run file and overrides: --section.key VALUE.", show_default=False),
        ],
        run_dir: Annotated[Optional[Path], typer.Option("--run-dir", help="Use exactly this folder.")] = None,  # noqa: UP045
        resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
        overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run of this name.")] = False,
        submit: Annotated[
            str, typer.Option("--submit", help="As a job for the Ray cluster at this address.", show_default=False)
        ] = "",
    ) -> None:
        """Print the OpenRLHF launch of a run file, to start it yourself; nothing is trained."""
        from agentr1_core.cli.main import quieten_libraries

        quieten_libraries()  # before anything imports them
        from agentr1_backend_openrlhf.command.prepare import prepare

        launch = prepare(run, ctx.obj, run_dir=run_dir, resume=resume, overwrite=overwrite)
        print(launch.as_ray_job(submit) if submit else launch.as_shell())

    @app.command("openrlhf-report")
    def openrlhf_report(
        run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a run.", show_default=False)],
    ) -> None:
        """Write figures and report of an OpenRLHF launch that you started yourself; at any time."""
        from agentr1_core.cli.main import quieten_libraries

        quieten_libraries()
        from agentr1_backend_openrlhf.command.report import report

        print(report(run_dir))
