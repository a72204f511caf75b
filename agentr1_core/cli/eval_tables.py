"""The tables that ``agentr1 eval`` ends with."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentr1_core.evaluation import Estimate, Figures, Summary
from agentr1_core.evaluation.estimates import CONFIDENCE
from agentr1_core.job import EvaluationJob
from agentr1_core.run_folder import RunFolder

#: Causes of failed episodes that are written out.
_CAUSES = 3


def show_summary(
    console: Console, summary: Summary, job: EvaluationJob, folder: RunFolder, *, split: str, column: str | None
) -> None:
    """Print what came out, what failed, and where it all lies."""
    figures = summary.figures
    console.print(
        Text.assemble((job.model, "bold"), f", '{split}': {figures.attempts} episodes of {figures.tasks} tasks"),
        soft_wrap=True,
    )
    console.print(_figures(figures))
    if summary.groups:
        console.print(_groups(summary, column or "group"))
    for name, n_tasks in figures.short.items():
        console.print(f"{name} is without {n_tasks} tasks that have too few usable attempts.", highlight=False)
    cut = ", ".join(f"{reason} {count}" for reason, count in summary.stop_reasons.items())
    console.print(f"Episodes ended by: {cut}", markup=False, highlight=False, soft_wrap=True)
    if figures.failed:
        _say_failures(console, summary)
    console.print(f"Results: {folder.path}", markup=False, highlight=False, soft_wrap=True)


def _say_failures(console: Console, summary: Summary) -> None:
    n_failed = summary.figures.failed
    console.print(
        Text.assemble(
            (f"{n_failed} episodes failed", "bold red"),
            " and are in none of these figures"
            f" (success would be {summary.success_if_failed_count:.3f} with them as not solved):",
        ),
        soft_wrap=True,
    )
    for cause, count in list(summary.failures.items())[:_CAUSES]:
        console.print(Text(f"  {count} times: {cause}", style="red"), soft_wrap=True)
    if len(summary.failures) > _CAUSES:
        console.print(f"  and {len(summary.failures) - _CAUSES} more causes, in results.jsonl", highlight=False)
    console.print("Play them again with --resume.", highlight=False)


def _figures(figures: Figures) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    table.add_column("mean", justify="right")
    table.add_column(f"{CONFIDENCE:.0%} interval", justify="right")
    for name, estimate in (*figures.rates.items(), *figures.means.items()):
        table.add_row(Text(name), _number(estimate.value), _interval(estimate))
    return table


def _groups(summary: Summary, column: str) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column(Text(column))  # Text, here and below: names of the data may look like markup
    rates = [name for name in summary.figures.rates if not name.startswith("pass^")]
    means = ["reward", "steps", *(name for name in summary.figures.means if name.startswith("info/"))]
    for name in ("tasks", "episodes", "failed", "success", "interval", *rates[1:], *means):
        table.add_column(Text(name.removeprefix("info/")), justify="right")
    for group, figures in summary.groups.items():
        success = figures.rates.get("success")
        table.add_row(
            Text(group),
            *(str(count) for count in (figures.tasks, figures.attempts, figures.failed)),
            _number(success.value) if success else "-",
            _interval(success) if success else "",
            *(_value(figures.rates.get(name)) for name in rates[1:]),
            *(_value(figures.means.get(name)) for name in means),
        )
    return table


def _value(estimate: Estimate | None) -> str:
    return "-" if estimate is None else _number(estimate.value)


def _interval(estimate: Estimate) -> str:
    return f"{_number(estimate.low)} to {_number(estimate.high)}"


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"
