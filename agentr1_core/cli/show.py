"""One trajectory in the terminal, step by step: what was seen, sampled, fed back and rewarded."""

from __future__ import annotations

import json
from collections.abc import Iterable

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.panel import Panel
from rich.rule import Rule
from rich.text import Text

from agentr1_core.mdp import Action, Message, Step, Trajectory

#: Colour of a message by its role.
_ROLE_STYLES = {"system": "dim", "user": "cyan", "assistant": "magenta", "tool": "yellow"}


def show_trajectory(console: Console, trajectory: Trajectory) -> None:
    """Print it."""
    console.print(Rule(Text.assemble("Episode ", (trajectory.id, "bold"), f", {len(trajectory.steps)} steps")))
    shown: tuple[Message, ...] = ()
    for step in trajectory.steps:
        console.print(_step(step, shown))
        shown = (*step.observation.messages, step.action.message)
    style = "green" if trajectory.ret > 0 else "red"
    console.print(
        Text.assemble(
            "Return ", (f"{trajectory.ret:g}", f"bold {style}"), f", stopped because: {trajectory.stop_reason.value}"
        )
    )
    if trajectory.error is not None:
        console.print(Text(trajectory.error, style="red"))
    console.print()


def _step(step: Step, shown: tuple[Message, ...]) -> RenderableType:
    messages = step.observation.messages
    appended = bool(shown) and messages[: len(shown)] == shown
    parts: list[RenderableType] = [_heading(f"saw {step.n_prompt} tokens" + (", continued" if appended else ""))]
    parts += _messages(messages[len(shown) :] if appended else messages)
    mean = f", mean log-prob {np.mean(step.action.logprobs):.2f}" if len(step.action) else ""
    parts.append(_heading(f"sampled {step.action.n_sampled} tokens{mean}, {step.action.finish_reason.value}"))
    parts.append(Text(_said(step.action) or "(nothing)", style="bold"))
    for failure in step.action.parse_failures:
        parts.append(Text(f"did not parse: {failure.explain()}", style="red"))
    if step.feedback and step.next_observation is not None:
        parts.append(_heading("fed back"))
        parts += _messages(step.feedback)
    if step.reward is not None:
        parts.append(_heading(f"rewarded {step.reward:g}"))
    return Panel(Group(*parts), title=f"step {step.index + 1}", title_align="left", border_style="dim")


def _said(action: Action) -> str:
    """The text, with the calls where they are no part of it: those of a chat endpoint."""
    calls = () if action.trainable else action.tool_calls
    told = (json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False) for call in calls)
    return "\n".join([*filter(None, [action.text]), *told])


def _heading(text: str) -> Text:
    return Text(text, style="italic dim")


def _messages(messages: Iterable[Message]) -> list[RenderableType]:
    lines: list[RenderableType] = []
    for message in messages:
        role = str(message.get("role"))
        content = message.get("content")
        text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
        calls = [json.dumps(call.get("function", call), ensure_ascii=False) for call in message.get("tool_calls") or ()]
        lines.append(Text.assemble((f"{role}: ", _ROLE_STYLES.get(role, "")), "\n".join(filter(None, [text, *calls]))))
    return lines
