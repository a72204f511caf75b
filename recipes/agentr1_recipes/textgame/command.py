"""Reads the command out of what a model said."""

from __future__ import annotations

import re

_THOUGHT = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_TAGGED = re.compile(r"<action>((?:(?!<action>).)*?)</action>", re.DOTALL)


def read_command(said: str) -> str | None:
    """The command, in lower case and with single spaces; ``None`` where there is none.

    Thoughts (``<think>...</think>``) are left out. Then the last ``<action>...</action>`` counts; without the tag the
    last line that is not empty, where a leading ``>`` or ``action:`` is dropped. A tag that is never closed is no
    command.
    """
    said = _THOUGHT.sub("", said)
    tagged = _TAGGED.findall(said)
    if not tagged and "<action>" in said:
        return None
    lines = (tagged[-1] if tagged else said).strip().splitlines()
    if not lines:
        return None
    command = " ".join(lines[-1].lower().split())
    command = command.removeprefix(">").strip().removeprefix("action:").strip()
    return command or None
