"""Trajectories for the report: which ones are shown, and their tokens with the probability of each.

``page`` calls it with the lines of ``trajectories.jsonl``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: Longest action whose tokens are coloured one by one.
MAX_COLOURED_TOKENS = 600


@dataclass(frozen=True, slots=True)
class Token:
    """A sampled token as the report shows it."""

    text: str
    #: 0 for almost certain to 4 for very surprising.
    surprise: int
    hint: str


@dataclass(frozen=True, slots=True)
class Shown:
    """A trajectory and why it was chosen."""

    labels: Sequence[str]
    row: Mapping[str, Any]


def choose(rows: Sequence[Mapping[str, Any]], n: int) -> list[Shown]:
    """Up to ``n`` trajectories: the last, the best, the worst and the first kept, then some in between."""
    if not rows or n < 1:
        return []
    order = range(len(rows))
    chosen: dict[int, list[str]] = {}
    wanted = (
        ("best", max(order, key=lambda i: (rows[i]["reward"], i))),
        ("worst", min(order, key=lambda i: (rows[i]["reward"], -i))),
        ("first", 0),
        ("last", len(rows) - 1),
    )
    for label, position in wanted:
        if position in chosen or len(chosen) < n:
            chosen.setdefault(position, []).append(label)
    spare = n - len(chosen)
    for k in range(1, spare + 1):
        position = round(k * (len(rows) - 1) / (spare + 1))
        chosen.setdefault(position, [f"update {rows[position].get('update', 0)}"])
    return [Shown(labels, rows[position]) for position, labels in chosen.items()]


class TokenTexts:
    """Splits sampled ids into texts, where the run folder has the model's tokenizer."""

    def __init__(self, run_dir: Path) -> None:
        self._tokenizer = _find_tokenizer(run_dir)

    def tokens(self, step: Mapping[str, Any]) -> list[Token] | None:
        """The tokens of an action; ``None`` when they cannot be told apart and the plain text is shown."""
        ids, logprobs = step.get("token_ids") or [], step.get("logprobs") or []
        if self._tokenizer is None or not ids or len(ids) != len(logprobs) or len(ids) > MAX_COLOURED_TOKENS:
            return None
        texts, said = [], ""
        for end in range(1, len(ids) + 1):
            whole = self._tokenizer.decode(ids[:end], skip_special_tokens=False)
            texts.append(whole[len(said) :] if whole.startswith(said) else self._tokenizer.decode([ids[end - 1]]))
            said = whole
        return [
            Token(text, _surprise(logprob), f"token {number}, probability {math.exp(logprob):.3f}")
            for text, number, logprob in zip(texts, ids, logprobs, strict=True)
        ]


def message_text(message: Mapping[str, Any]) -> str:
    """The content of a message with its tool calls written out."""
    content = message.get("content")
    text = content if isinstance(content, str) else "" if content is None else json.dumps(content, ensure_ascii=False)
    calls = [json.dumps(call.get("function", call), ensure_ascii=False) for call in message.get("tool_calls") or ()]
    return "\n".join(part for part in (text, *calls) if part)


def new_messages(steps: Sequence[Mapping[str, Any]], index: int) -> tuple[int, Sequence[Mapping[str, Any]]]:
    """How many messages of a step's context were shown with the steps before, and those that were not.

    An appended context repeats what was seen, sampled and fed back before; only a question asked on top of it (by a
    context policy) is new.
    """
    seen = steps[index]["seen"]
    if index == 0:
        return 0, seen
    before = steps[index - 1]
    known = [*before["seen"], None, *before["feedback"]]  # None stands for the sampled message
    appended = len(seen) >= len(known) and all(old is None or old == new for old, new in zip(known, seen, strict=False))
    return (len(known), seen[len(known) :]) if appended and before["feedback"] else (0, seen)


def _surprise(logprob: float) -> int:
    probability = math.exp(min(logprob, 0.0))
    return sum(probability < bound for bound in (0.9, 0.5, 0.2, 0.05))


def _find_tokenizer(run_dir: Path) -> Any:
    files = [run_dir / name / "tokenizer.json" for name in ("checkpoint", "base_model")]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        return None
    try:
        from tokenizers import Tokenizer
    except ImportError:
        return None
    try:
        return Tokenizer.from_file(str(found))
    except Exception:  # the library raises bare Exception; the report then shows plain text
        return None
