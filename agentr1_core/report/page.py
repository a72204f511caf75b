"""Put the report together: what the run folder holds, into the template, into ``report.html``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentr1_core.report.curves import draw_curves
from agentr1_core.report.estimates import evaluation_tables
from agentr1_core.report.steps import Shown, TokenTexts, choose, message_text, new_messages

if TYPE_CHECKING:
    from agentr1_core.run_folder import RunFolder


def write_report(folder: RunFolder, *, shown: int = 4) -> Path:
    """Write ``report.html`` into the run folder.

    Args:
        folder: A run, finished or not; what is missing is left out.
        shown: Trajectories shown step by step.

    Returns:
        The file's path.
    """
    import jinja2
    from markupsafe import Markup

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    metrics = folder.read_metrics()
    texts = TokenTexts(folder.path)
    summary = folder.read_summary()
    html = environment.get_template("report.html.j2").render(
        name=folder.path.name,
        summary=summary,
        facts=_facts(summary, metrics),
        ledger=_ledger(summary, metrics),
        tables=evaluation_tables(summary),
        curves=[(each.title, each.caption, Markup(each.svg)) for each in draw_curves(metrics)],
        trajectories=[_trajectory(each, texts) for each in choose(folder.read_trajectories(), shown)],
        config=folder.config.read_text(encoding="utf-8") if folder.config.is_file() else "",
    )
    folder.report.write_text(html, encoding="utf-8", errors="backslashreplace")  # half a character, as models write it
    return folder.report


def _facts(summary: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Figures in words for the head of the page."""
    seconds = summary.get("seconds") or (metrics[-1].get("seconds") if metrics else None)
    updates = summary.get("updates") or (metrics[-1].get("update") if metrics else None)
    facts = [
        ("Model", "the recipe's own" if summary.get("model") == "recipe" else summary.get("model")),
        ("Recipe", summary.get("recipe")),
        ("Updates", None if updates is None else f"{updates:,}"),
        ("Time", None if seconds is None else _duration(float(seconds))),
        ("agentr1", summary.get("version")),
    ]
    return [(name, str(value)) for name, value in facts if value]


def _ledger(summary: Mapping[str, Any], metrics: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Token totals, from the summary or, before it exists, from the updates so far."""
    if summary.get("ledger"):
        return {name: int(value) for name, value in summary["ledger"].items()}
    names = ("sampled", "trained", "masked", "dropped")
    total = {name: int(sum(row.get(f"ledger/{name}", 0) for row in metrics)) for name in names}
    return total if total["sampled"] else {}


def _trajectory(shown: Shown, texts: TokenTexts) -> dict[str, Any]:
    row = shown.row
    return {
        "labels": shown.labels,
        "id": row["id"],
        "phase": {"eval": "held-out task", "train": "training"}.get(row["phase"], row["phase"]),
        "at": _moment(row),
        "reward": row["reward"],
        "success": row.get("success", False),
        "stop_reason": str(row["stop_reason"]).replace("_", " "),
        "error": row.get("error"),
        "n_tokens": row.get("tokens", 0),
        "steps": [_step(row["steps"], index, texts) for index in range(len(row["steps"]))],
    }


def _moment(row: Mapping[str, Any]) -> str:
    update = row.get("update", 0)
    if row["phase"] == "train":
        return f"update {update}"
    return f"after update {update}" if update else "before the first update"


def _step(steps: Sequence[Mapping[str, Any]], index: int, texts: TokenTexts) -> dict[str, Any]:
    step = steps[index]
    # What is fed back is what the next step sees; a rewritten context is shown there, an appended answer here.
    rewritten = index + 1 < len(steps) and step["feedback"] == steps[index + 1]["seen"]
    n_before, messages = new_messages(steps, index)
    return {
        "number": index + 1,
        "n_before": n_before,
        "messages": [(message.get("role", ""), message_text(message)) for message in messages],
        "prompt_tokens": step.get("prompt_tokens", 0),
        "continued": step.get("continued", False),
        "text": _said(step),
        "tokens": texts.tokens(step),
        "n_tokens": step.get("sampled_tokens", len(step.get("token_ids") or [])),
        "finish_reason": step.get("finish_reason", ""),
        "parse_failures": [str(each).replace("_", " ") for each in step.get("parse_failures", ())],
        "rewritten": rewritten,
        "feedback": [(message.get("role", ""), message_text(message)) for message in step["feedback"]],
        "reward": step["reward"],
    }


def _said(step: Mapping[str, Any]) -> str:
    """The text of an action, with its calls where they are no part of it: those of a chat endpoint."""
    calls = () if step.get("token_ids") else step.get("tool_calls", ())
    return "\n".join([*filter(None, [step["text"]]), *(json.dumps(call, ensure_ascii=False) for call in calls)])


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
