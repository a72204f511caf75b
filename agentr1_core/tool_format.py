"""Tool-call formats for models that ``renderers`` does not know.

A format says how tools are described to the model, how a call is written, and how sampled tokens are searched for
calls. The Hermes format here is read from text, so it also works where ``<tool_call>`` is no token of its own.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_core.mdp import ParseFailure, ParseStatus, ToolSpec


@dataclass(frozen=True, slots=True)
class ParsedText:
    """The prose of an answer, the calls that parsed as ``(name, arguments)``, and those that did not."""

    content: str
    calls: tuple[tuple[str, dict[str, Any]], ...]
    failures: tuple[ParseFailure, ...]


class ToolFormat(ABC):
    """How a model without a tool-aware chat template calls tools."""

    @abstractmethod
    def describe(self, tools: Sequence[ToolSpec]) -> str:
        """Text for the system message that tells the model its tools and how to call them."""

    @abstractmethod
    def write(self, name: str, arguments: dict[str, Any]) -> str:
        """One call as the model would write it."""

    @abstractmethod
    def parse(self, text: str) -> ParsedText:
        """Find the calls in an answer's text (without its stop token)."""


class HermesFormat(ToolFormat):
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, as Hermes and Qwen write it."""

    OPEN, CLOSE = "<tool_call>", "</tool_call>"

    def describe(self, tools: Sequence[ToolSpec]) -> str:
        listed = "\n".join(json.dumps({"type": "function", "function": dict(spec)}) for spec in tools)
        return (
            "# Tools\n\nYou may call one or more functions. They are described in <tools></tools>:\n"
            f"<tools>\n{listed}\n</tools>\n\n"
            "For each call answer with a JSON object in <tool_call></tool_call>:\n"
            '<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
        )

    def write(self, name: str, arguments: dict[str, Any]) -> str:
        call = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
        for marker in (self.OPEN, self.CLOSE):  # inside an argument it would end the call
            call = call.replace(marker, f"\\u003c{marker[1:]}")
        return f"{self.OPEN}\n{call}\n{self.CLOSE}"

    def parse(self, text: str) -> ParsedText:
        content, *blocks = text.split(self.OPEN)
        stray_close = content.find(self.CLOSE)
        calls: list[tuple[str, dict[str, Any]]] = []
        failures: list[ParseFailure] = []
        if stray_close >= 0:  # a call whose opening tag is missing: prose, but clearly meant as a call
            failures.append(ParseFailure(ParseStatus.MALFORMED_STRUCTURE, content[: stray_close + len(self.CLOSE)]))
        prose = [content]
        for block in blocks:
            body, closed, rest = block.partition(self.CLOSE)
            raw = self.OPEN + body + closed
            if not closed:
                failures.append(ParseFailure(ParseStatus.UNCLOSED_BLOCK, raw))
                continue
            prose.append(rest)
            outcome = _read_call(body)
            if isinstance(outcome, ParseStatus):
                failures.append(ParseFailure(outcome, raw))
            else:
                calls.append(outcome)
        return ParsedText("".join(prose).strip(), tuple(calls), tuple(failures))


def _read_call(body: str) -> tuple[str, dict[str, Any]] | ParseStatus:
    try:
        call = json.loads(body)
    except (ValueError, RecursionError):  # also numbers and nesting beyond Python's limits
        return ParseStatus.INVALID_JSON
    if not isinstance(call, dict):
        return ParseStatus.MALFORMED_STRUCTURE
    name, arguments = call.get("name"), call.get("arguments", {})
    if not isinstance(name, str) or not name:
        return ParseStatus.MISSING_NAME
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return ParseStatus.INVALID_JSON
    if not isinstance(arguments, dict):
        return ParseStatus.MALFORMED_STRUCTURE
    return name, arguments


def has_half_character(value: Any) -> bool:
    """Whether plain data holds half a surrogate pair, as JSON's ``"\\ud83d"`` does: no tokenizer or file takes it."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False
