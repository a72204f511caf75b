"""The tables of an evaluation in the report: figures with their intervals, and success by group.

``page`` calls it with what ``agentr1 eval`` wrote to ``summary.json``; a training run has none of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple


class ReportTable(NamedTuple):
    """A table as the page shows it."""

    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def evaluation_tables(summary: Mapping[str, Any]) -> list[ReportTable]:
    """The tables; none where the summary is of no evaluation."""
    if "rates" not in summary:
        return []
    failed = f", {summary['failed']} failed and left out" if summary["failed"] else ""
    title = f"Evaluation of '{summary['split']}': {summary['attempts']} episodes of {summary['tasks']} tasks{failed}"
    interval = f"{100 * summary['confidence']:g} % interval"
    estimates = {**summary["rates"], **summary["means"]}
    rows = [(name, _number(each["value"]), _interval(each)) for name, each in estimates.items()]
    tables = [ReportTable(title, ("", "mean", interval), rows)]
    if summary["groups"]:
        tables.append(_groups(summary, interval))
    return tables


def _groups(summary: Mapping[str, Any], interval: str) -> ReportTable:
    rows = []
    for name, group in summary["groups"].items():
        success, reward = group["rates"].get("success"), group["means"].get("reward")
        rows.append(
            (
                name,
                *(str(group[count]) for count in ("tasks", "attempts", "failed")),
                _number(success["value"]) if success else "-",
                _interval(success) if success else "",
                _number(reward["value"]) if reward else "-",
            )
        )
    columns = (str(summary["group_by"]), "tasks", "episodes", "failed", "success", interval, "reward")
    return ReportTable(f"By {summary['group_by']}", columns, rows)


def _interval(estimate: Mapping[str, float]) -> str:
    return f"{_number(estimate['low'])} to {_number(estimate['high'])}"


def _number(value: float) -> str:
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1f}"
