"""The entry point: the commands with their options, and what happens to errors.

Each command imports what it needs when it runs, so that ``agentr1 --help`` stays fast. An ``AgentR1Error`` becomes
one message with its mend and exit code 1, wrong usage 2, Ctrl-C 130; ``--debug`` shows the traceback.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Optional

import typer

from agentr1_core.errors import AgentR1Error

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager

_PASS_THROUGH = {"ignore_unknown_options": True, "allow_interspersed_args": True}
_RUN_HELP = "A run file, a recipe or a run folder, and overrides: --section.key VALUE."
RunArguments = Annotated[list[str], typer.Argument(metavar="RUN", help=_RUN_HELP, show_default=False)]


class _Interrupted(Exception):
    """Ctrl-C during a command, in a form that typer passes on as it is."""


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt as error:
        raise _Interrupted from error


def create_app() -> typer.Typer:
    """The command line without the commands of plugins; its context's ``obj`` is the plugin manager."""
    app = typer.Typer(
        name="agentr1",
        help="Train LLM agents by step-level reinforcement learning.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def root(
        version: Annotated[
            bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
        ] = False,
        debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    ) -> None:
        pass

    @app.command(context_settings=_PASS_THROUGH)
    def train(
        ctx: typer.Context,
        run: RunArguments,
        resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last checkpoint.")] = False,
        overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run of this name.")] = False,
        run_dir: Annotated[Optional[Path], typer.Option("--run-dir", help="Use exactly this folder.")] = None,  # noqa: UP045
    ) -> None:
        """Train an agent: agentr1 train quickstart --algorithm.updates 5"""
        _quieten_libraries()
        from agentr1_core.cli.train import train as command

        with _interruptible():
            command(run, ctx.obj, resume=resume, overwrite=overwrite, run_dir=run_dir)

    @app.command(context_settings=_PASS_THROUGH)
    def rollout(
        ctx: typer.Context,
        run: RunArguments,
        n: Annotated[int, typer.Option("-n", "--episodes", min=1, help="Episodes to play.")] = 8,
        split: Annotated[str, typer.Option("--split", help="Tasks to play: eval or train.")] = "eval",
        run_dir: Annotated[Optional[Path], typer.Option("--run-dir", help="Use exactly this folder.")] = None,  # noqa: UP045
    ) -> None:
        """Play episodes without training, and show one step by step."""
        _quieten_libraries()
        from agentr1_core.cli.rollout import rollout as command

        with _interruptible():
            command(run, ctx.obj, n=n, split=split, run_dir=run_dir)

    @app.command(context_settings=_PASS_THROUGH)
    def certify(
        ctx: typer.Context,
        run: RunArguments,
        groups: Annotated[int, typer.Option("-n", "--groups", min=1, help="Groups of episodes to collect.")] = 2,
        fault: Annotated[
            str,
            typer.Option(
                "--fault", help="Damage positions, shift, retokenise, context or stale on purpose; must fail."
            ),
        ] = "",
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programmes.")] = False,
    ) -> None:
        """Measure that what is trained is what was sampled, on this machine; exit code 1 if not."""
        _quieten_libraries()
        from agentr1_core.cli.certify import certify as command

        with _interruptible():
            passed = command(run, ctx.obj, n_groups=groups, fault=fault or None, as_json=as_json)
        if not passed:
            raise typer.Exit(1)

    @app.command(context_settings=_PASS_THROUGH)
    def config(ctx: typer.Context, run: RunArguments) -> None:
        """Show a run file with all defaults and overrides filled in."""
        from agentr1_core.cli.config import config as command

        command(run, ctx.obj)

    @app.command()
    def plugins(
        ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programmes.")] = False
    ) -> None:
        """List the plugins found, what each offers, and what is broken and why."""
        from agentr1_core.cli.plugins import plugins as command

        command(ctx.obj, as_json=as_json)

    @app.command()
    def new(
        ctx: typer.Context,
        kind: Annotated[
            str, typer.Argument(metavar="KIND", help="tool, env, engine or estimator.", show_default=False)
        ],
        name: Annotated[str, typer.Argument(metavar="NAME", help="For example acme-weather.", show_default=False)],
        folder: Annotated[Optional[Path], typer.Option("--dir", help="Write it here; by default ./NAME.")] = None,  # noqa: UP045
    ) -> None:
        """Begin a plugin package of your own: agentr1 new tool acme-weather"""
        from agentr1_core.cli.new import new as command

        command(kind, name, ctx.obj, folder=folder)

    @app.command()
    def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programmes.")] = False) -> None:
        """Show which stacks are installed, their versions, and the devices."""
        from agentr1_core.cli.doctor import doctor as command

        command(as_json=as_json)

    @app.command()
    def report(
        run_dir: Annotated[Path, typer.Argument(metavar="RUN_DIR", help="Folder of a run.", show_default=False)],
    ) -> None:
        """Write the report of a run again."""
        from agentr1_core.cli.report import report as command

        command(run_dir)

    app.add_typer(_lab_app(), name="lab")
    return app


def _lab_app() -> typer.Typer:
    """The commands under ``agentr1 lab``."""
    app = typer.Typer(help="Experiments on tasks whose answer is known.", no_args_is_help=True)

    @app.callback()
    def root() -> None:
        pass

    @app.command()
    def bias(
        ctx: typer.Context,
        estimator: Annotated[str, typer.Argument(help="A credit estimator, by name.", show_default=False)],
        settings: Annotated[Optional[list[str]], typer.Option("--set", help="A setting: gamma=0.9")] = None,  # noqa: UP045
        batches: Annotated[int, typer.Option("--batches", min=2, help="Gradients to draw.")] = 20_000,
        group_size: Annotated[int, typer.Option("--group-size", min=1, help="Episodes of a group.")] = 8,
        average: Annotated[str, typer.Option("--average", help="How token losses are averaged.")] = (
            "traj-mean-token-sum"
        ),
        critic: Annotated[str, typer.Option("--critic", help="Values it sees: exact or none.")] = "exact",
        seed: Annotated[int, typer.Option("--seed", help="Of all that is drawn.")] = 0,
        plot: Annotated[Optional[Path], typer.Option("--plot", help="Write a picture (SVG).")] = None,  # noqa: UP045
        as_json: Annotated[bool, typer.Option("--json", help="Print JSON for programmes.")] = False,
    ) -> None:
        """Measure bias and variance of an estimator's gradient: agentr1 lab bias grpo --plot grpo.svg"""
        from agentr1_core.cli.lab import bias as command

        command(
            estimator,
            ctx.obj,
            settings=settings or (),
            batches=batches,
            group_size=group_size,
            average=average,
            critic=critic,
            seed=seed,
            plot=plot,
            as_json=as_json,
        )

    return app


def main(arguments: Sequence[str] | None = None, plugins: PluginManager | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: Without the programme's name; those of the process when left out.
        plugins: Stands in for the installed plugins, for tests.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in given or bool(os.environ.get("AGENTR1_DEBUG"))
    given = [argument for argument in given if argument != "--debug"]
    # Classes and functions named as `module:attribute` are looked for here too, as `python -m` would.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    if plugins is None:
        from agentr1_core.plugins import PluginManager

        plugins = PluginManager.discover()
    app = create_app()
    plugins.extend_cli(app)
    try:
        app(given, obj=plugins)
    except SystemExit as done:  # how typer ends, also for wrong usage
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except AgentR1Error as error:
        if debug:
            raise
        _say_error(error)
        return 1
    except ExceptionGroup as group:  # from tasks that ran side by side, such as the episodes of a batch
        ours = _first_error(group)
        if debug or ours is None:
            raise
        _say_error(ours)
        return 1
    except (KeyboardInterrupt, _Interrupted):
        if debug:
            raise
        print("\nInterrupted.", file=sys.stderr)
        return 130
    return 0


def _first_error(group: BaseExceptionGroup[BaseException]) -> AgentR1Error | None:
    for error in group.exceptions:
        found = _first_error(error) if isinstance(error, BaseExceptionGroup) else error
        if isinstance(found, AgentR1Error):
            return found
    return None


def _quieten_libraries() -> None:
    """Progress bars of libraries would tear up our own; they read these variables when they are imported."""
    import warnings

    for name in ("TQDM_DISABLE", "HF_HUB_DISABLE_PROGRESS_BARS", "HF_DATASETS_DISABLE_PROGRESS_BARS"):
        os.environ.setdefault(name, "1")
    # Deprecations inside transformers and TRL are for their developers; `python -W` still shows them.
    if not sys.warnoptions:
        warnings.filterwarnings("ignore", category=FutureWarning, module=r"transformers\.|trl\.")


def _say_error(error: AgentR1Error) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True)
    console.print(Text.assemble(("Error: ", "bold red"), (error.problem, "red")), soft_wrap=True)
    if error.mend is not None:
        console.print(Text.assemble("  -> ", error.mend), soft_wrap=True)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print(f"agentr1 {version('agentr1')}")
        except PackageNotFoundError:
            print("agentr1 (not installed)")
        raise typer.Exit
