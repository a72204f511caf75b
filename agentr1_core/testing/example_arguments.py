"""Arguments to try a tool with, read from its schema.

A property's ``examples``, ``default``, ``enum`` and ``const`` are good by the author's word. Anything else is a guess
that fits the type: the tool may answer that it cannot do anything with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentr1_core.errors import PluginError
from agentr1_core.tool import BaseTool, check_arguments

_GUESSES: Mapping[str, Any] = {
    "string": "text",
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "array": [],
    "object": {},
    "null": None,
}


def example_calls(tool: BaseTool) -> tuple[list[dict[str, Any]], bool]:
    """Calls that fit the tool's schema, and whether the author says that they work.

    Raises:
        PluginError: No arguments can be found that fit.
    """
    schema = tool.parameters
    given = [dict(call) for call in schema.get("examples", ()) if isinstance(call, Mapping)]
    if given:
        return given, True
    properties: Mapping[str, Any] = schema.get("properties", {})
    required = set(schema.get("required", ()))
    known = all(_examples(properties.get(name, {})) for name in required)
    wanted = [name for name, each in properties.items() if name in required or _examples(each)]
    calls: list[dict[str, Any]] = []
    for turn in range(max([1, *(len(_examples(properties[name])) for name in wanted)])):
        call = {name: _value(properties[name], turn, schema.get("$defs", {})) for name in wanted}
        if call not in calls:
            calls.append(call)
    problem = check_arguments(schema, calls[0])
    if problem is not None:
        raise PluginError(
            f"No arguments for the tool '{tool.name}' can be guessed from its schema: {problem}.",
            "Give `examples` in the schema, or subclass ToolKit and give good_calls().",
        )
    return calls, known


def _examples(schema: Mapping[str, Any]) -> list[Any]:
    """What the author says is good."""
    for key in ("examples", "enum"):
        if schema.get(key):
            return list(schema[key])
    return [schema[key] for key in ("const", "default") if key in schema]


def _value(schema: Mapping[str, Any], turn: int, defs: Mapping[str, Any]) -> Any:
    examples = _examples(schema)
    if examples:
        return examples[turn % len(examples)]
    if "$ref" in schema:
        return _value(defs.get(str(schema["$ref"]).rpartition("/")[2], {}), turn, defs)
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            return _value(schema[choice][0], turn, defs)
    kind = schema.get("type", "string")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "object":
        properties = schema.get("properties", {})
        return {name: _value(properties.get(name, {}), turn, defs) for name in schema.get("required", ())}
    if kind in ("integer", "number") and "minimum" in schema:
        return schema["minimum"]
    return _GUESSES.get(kind, "text")
