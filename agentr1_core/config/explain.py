"""Say what is wrong with a configuration: file, dotted path, the value, what was expected, and the nearest known key.

``load_config`` calls it with pydantic's error, the job builder with that of a plugin's settings.
"""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, Union

from pydantic import BaseModel, ValidationError

from agentr1_core.errors import ConfigError

_TYPES: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "text",
    bool: "true or false",
}


def explain(error: ValidationError, model: type[BaseModel], where: str, prefix: str = "") -> ConfigError:
    """One line for each mistake, with its mend.

    Args:
        error: What pydantic found.
        model: The schema it was checked against.
        where: The file, or whatever the reader knows it as.
        prefix: Dotted path of the section that ``model`` stands for.
    """
    problems: dict[str, tuple[str, str | None]] = {}
    for item in error.errors():
        path = _path(model, item["loc"])
        dotted = ".".join(str(part) for part in (*filter(None, [prefix]), *path))
        if item["type"] == "extra_forbidden":
            problems[dotted] = (f"unknown key '{dotted}'", _nearest(model, path, prefix))
        elif item["type"] == "missing":
            problems[dotted] = (f"'{dotted}' is missing", f"Set `{dotted}`.")
        else:
            problems.setdefault(dotted, (_wrong_value(dotted, item, _annotation(model, path)), None))
    lines = [problem for problem, _ in problems.values()]
    mends = list(dict.fromkeys(mend for _, mend in problems.values() if mend))
    if len(lines) == 1:
        return ConfigError(f"{where}: {lines[0]}.", mends[0] if mends else "Mend this value.")
    listed = "\n".join(f"  - {problem}.{f' {mend}' if mend else ''}" for problem, mend in problems.values())
    return ConfigError(f"{where} has {len(lines)} mistakes:\n{listed}", "Mend these keys of the run file.")


#: What others call a key of ours.
_OTHER_NAMES = {"rows": "`algorithm.merge` (`tree`, `linear` for merged rows, `none` for separate ones)"}


def nearest_keys(key: str, known: Sequence[str]) -> str:
    """``Did you mean ...?`` or, when nothing is near, the list of what is known."""
    near = difflib.get_close_matches(key, known, n=3, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(f'`{each}`' for each in near)}?"
    return f"Known keys here: {', '.join(known) or 'none'}."


def _wrong_value(dotted: str, item: Any, annotation: Any) -> str:
    value = item["input"]
    shown = "a section" if isinstance(value, dict) else "a list" if isinstance(value, list) else repr(value)
    of_wrong_type = item["type"] == "int_from_float" or item["type"].endswith(("_type", "_parsing", "literal_error"))
    expected = _describe(annotation) if of_wrong_type else None
    if expected is not None:
        return f"'{dotted}' is {shown}; expected {expected}"
    message = item["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return f"'{dotted}' is {shown}; it must be {message}"


def _describe(annotation: Any) -> str | None:
    """An annotation in words; ``None`` where pydantic's own message says more."""
    if annotation in _TYPES:
        return _TYPES[annotation]
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(str(arg) for arg in args)
    if origin in (Union, types.UnionType):
        return " or ".join(filter(None, (_describe(arg) for arg in args if arg is not type(None)))) or None
    if origin in (list, tuple):
        return "a list"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "a name, or a section with a name" if hasattr(annotation, "name_alone") else "a section"
    return "a section" if annotation is dict or origin is dict else None


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for arg in typing.get_args(annotation):
        yield from _models(arg)


def _annotation(model: type[BaseModel], path: Sequence[Any]) -> Any:
    """The annotation of the field that a path leads to."""
    current: Any = model
    for part in path:
        if isinstance(part, int):
            args = typing.get_args(current)
            current = args[0] if args else Any
            continue
        owner = next((each for each in _models(current) if part in each.model_fields), None)
        if owner is None:
            return Any
        current = owner.model_fields[part].annotation
    return current


def _path(model: type[BaseModel], loc: Sequence[Any]) -> tuple[Any, ...]:
    """pydantic's location without the union branches (``int``, ``str``) it appends."""
    kept: list[Any] = []
    current: Any = model
    for position, part in enumerate(loc):
        if isinstance(part, int):
            kept.append(part)
            args = typing.get_args(current)
            current = args[0] if args else Any
            continue
        owner = next((each for each in _models(current) if part in each.model_fields), None)
        if owner is not None:
            kept.append(part)
            current = owner.model_fields[part].annotation
        elif position == len(loc) - 1 and any(True for _ in _models(current)):
            kept.append(part)  # an unknown key of a section
    return tuple(kept)


def _known(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        dotted = f"{prefix}.{name}" if prefix else name
        yield dotted
        for inner in _models(field.annotation):
            if typing.get_origin(field.annotation) is not list:
                yield from _known(inner, dotted)


def _nearest(model: type[BaseModel], path: Sequence[Any], prefix: str) -> str:
    """The nearest key of the same section, or one of that name in another section."""
    *section, key = path
    owner = next(iter(_models(_annotation(model, section))), model)
    siblings = list(owner.model_fields)
    near = difflib.get_close_matches(str(key), siblings, n=2, cutoff=0.6)
    before = ".".join(str(part) for part in (*filter(None, [prefix]), *section))
    if near:
        return f"Did you mean {' or '.join(f'`{before}.{each}`' if before else f'`{each}`' for each in near)}?"
    if key in _OTHER_NAMES:
        return f"Did you mean {_OTHER_NAMES[key]}?"
    elsewhere = [dotted for dotted in _known(model, prefix) if dotted.rpartition(".")[2] == key]
    if not elsewhere:
        last = {dotted.rpartition(".")[2]: dotted for dotted in _known(model, prefix)}
        elsewhere = [last[each] for each in difflib.get_close_matches(str(key), list(last), n=2, cutoff=0.75)]
    if elsewhere:
        return f"Did you mean {' or '.join(f'`{each}`' for each in elsewhere)}?"
    return f"Known keys{f' of `{before}`' if before else ''}: {', '.join(siblings) or 'none'}."
