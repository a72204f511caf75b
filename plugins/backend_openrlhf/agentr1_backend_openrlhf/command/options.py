"""The options of OpenRLHF's command line: which there are, what values each takes, and how they are written.

The list is read from the OpenRLHF of this environment, or, where there is none, from the list shipped with this
package (``options.json``, of the version named in it). Translation and its tests call it; nothing here knows of runs.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal, cast

from agentr1_backend_openrlhf.command.openrlhf_parser import installed_source, read_parser
from agentr1_core.errors import ConfigError, PluginError

Kind = Literal["int", "float", "str", "on", "off"]
Value = bool | int | float | str | Sequence[int | float | str]

SHIPPED = Path(__file__).with_name("options.json")
_IN_WORDS: Mapping[str, str] = {"int": "a whole number", "float": "a number", "str": "text"}


@dataclass(frozen=True, slots=True)
class Option:
    """One option. ``name`` is its flag without the dashes, which is also its key in a run file."""

    name: str
    #: Type of each value; ``on`` and ``off`` are switches without a value.
    kind: Kind
    #: Where the parser keeps the value; a switch and its opposite share one.
    dest: str
    #: Values it takes: one (``None``), exactly so many, at least one (``+``) or any number (``*``).
    n_values: int | Literal["+", "*"] | None = None
    choices: tuple[str, ...] = ()
    default: Any = None

    @property
    def flag(self) -> str:
        """As it stands on the command line."""
        return f"--{self.name}"

    @property
    def is_switch(self) -> bool:
        """Whether it stands alone."""
        return self.kind in ("on", "off")


class Options:
    """The options of one version of OpenRLHF."""

    def __init__(self, openrlhf_version: str, options: Sequence[Option]) -> None:
        self.version = openrlhf_version
        self._by_name = {option.name: option for option in options}

    def __iter__(self) -> Iterator[Option]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Option:
        return self._by_name[name]

    def nearest(self, name: str) -> str | None:
        """The known option that ends in ``name``, or in its last word, or is spelt most like it."""
        last = name.rpartition(".")[2].replace("-", "_")
        for ending in (f".{name}", f".{last}"):
            found = [each for each in self._by_name if each.endswith(ending)]
            if found:
                return max(found, key=lambda each: (not each.startswith("eval."), _likeness(name, each)))
        near = difflib.get_close_matches(name, self._by_name, n=1, cutoff=0.75)
        return near[0] if near else None

    def check(self, name: str, value: Any, key: str) -> None:
        """Refuse what OpenRLHF's parser would not take for this option.

        Args:
            name: A known option.
            value: As YAML gives it.
            key: Where it stands in the run file.

        Raises:
            ConfigError: Naming the key, the value and what is expected.
        """
        option = self[name]
        if option.is_switch:
            if not isinstance(value, bool):
                raise ConfigError(
                    f"`{key}` is {value!r}; OpenRLHF's {option.flag} is true or false.", "Mend its value."
                )
            return
        several = isinstance(value, (list, tuple))
        values = list(value) if several else [value]
        if option.n_values is None and several:
            raise ConfigError(f"`{key}` is a list; OpenRLHF's {option.flag} takes one value.", "Give one value.")
        if isinstance(option.n_values, int) and len(values) != option.n_values:
            raise ConfigError(
                f"`{key}` has {len(values)} values; OpenRLHF's {option.flag} takes {option.n_values}.",
                f"Give a list of {option.n_values}.",
            )
        if option.n_values == "+" and not values:
            raise ConfigError(f"`{key}` is an empty list.", "Give at least one value, or remove it.")
        for each in values:
            self._check_one(option, each, key)

    def _check_one(self, option: Option, value: Any, key: str) -> None:
        wanted: tuple[type, ...] = {"int": (int,), "float": (int, float), "str": (str,)}[option.kind]
        if not isinstance(value, wanted) or isinstance(value, bool):
            raise ConfigError(
                f"`{key}` is {value!r}; OpenRLHF's {option.flag} takes {_IN_WORDS[option.kind]}.", "Mend its value."
            )
        if isinstance(value, float) and (math.isnan(value) or value == -math.inf):
            raise ConfigError(f"`{key}` is {value}.", "Give a finite number, or `.inf`.")
        if isinstance(value, str) and value.startswith("-") and option.n_values is not None:
            raise ConfigError(f"`{key}` holds '{value}', which OpenRLHF would read as an option.", "Mend its value.")
        if option.choices and value not in option.choices:
            raise ConfigError(
                f"`{key}` is '{value}', which OpenRLHF {self.version} does not know for {option.flag}.",
                f"Use one of: {', '.join(option.choices)}.",
            )

    def write(self, values: Mapping[str, Value]) -> list[str]:
        """The arguments that set these options, in the order given; a switch at its default is left out.

        Every value must have passed ``check``.
        """
        arguments: list[str] = []
        for name, value in values.items():
            option = self[name]
            if option.is_switch:
                arguments += self._switch(option, bool(value))
            elif option.n_values is None:
                text = _text(value)
                # With the equals sign, for argparse takes a word that begins with a dash for an option.
                arguments += [f"{option.flag}={text}"] if text.startswith("-") else [option.flag, text]
            else:
                several = value if isinstance(value, (list, tuple)) else [value]
                arguments += [option.flag, *map(_text, several)]
        return arguments

    def _switch(self, option: Option, on: bool) -> list[str]:
        """The flag that brings a switch into this state from its default, if one is needed."""
        wanted = on if option.kind == "on" else not on
        if wanted == bool(option.default):
            return []
        kind: Kind = "on" if wanted else "off"
        flag = next((each.flag for each in self if each.dest == option.dest and each.kind == kind), None)
        if flag is None:
            raise ConfigError(
                f"OpenRLHF has no option that turns {option.flag} to {str(on).lower()}.",
                f"Remove `backend.{option.name}`.",
            )
        return [flag]


@cache
def known_options() -> Options:
    """The options of the installed OpenRLHF, or of the version that this package was written for.

    Raises:
        PluginError: The installed OpenRLHF has another command line.
    """
    source = installed_source()
    try:
        installed = version("openrlhf")
    except PackageNotFoundError:
        return shipped_options()
    if source is None:
        return shipped_options()
    try:
        return Options(installed, options_of(read_parser(source)))
    except ValueError as error:
        raise PluginError(
            f"Backend 'openrlhf' cannot read the options of OpenRLHF {installed}: {error}.",
            f"Install openrlhf=={shipped_options().version}.",
        ) from error


@cache
def shipped_options() -> Options:
    """The options of the version that this package was written for."""
    table = json.loads(SHIPPED.read_text(encoding="utf-8"))
    return Options(table["openrlhf"], [_from_json(name, each) for name, each in table["options"].items()])


def options_of(parser: argparse.ArgumentParser) -> list[Option]:
    """The options of a parser, in its order, ``--help`` left out."""
    found = []
    for action in parser._actions:  # argparse has no public list
        if isinstance(action, argparse._HelpAction):
            continue
        if isinstance(action, argparse._StoreTrueAction):
            kind: Kind = "on"
        elif isinstance(action, argparse._StoreFalseAction):
            kind = "off"
        else:
            kind = "int" if action.type is int else "float" if action.type is float else "str"
        found.append(
            Option(
                name=action.option_strings[0].removeprefix("--"),
                kind=kind,
                dest=action.dest,
                n_values=cast("int | Literal['+', '*'] | None", None if kind in ("on", "off") else action.nargs),
                choices=tuple(action.choices or ()),
                default=list(action.default) if isinstance(action.default, tuple) else action.default,
            )
        )
    # The default of a switch is what its destination starts with: the first option of that destination decides.
    first: dict[str, Any] = {}
    for option in found:
        first.setdefault(option.dest, option.default)
    return [
        Option(each.name, each.kind, each.dest, each.n_values, each.choices, first[each.dest])
        if each.is_switch
        else each
        for each in found
    ]


def to_json(openrlhf_version: str, options: Sequence[Option]) -> str:
    """The text of ``options.json``, one option a line."""
    lines = []
    for option in options:
        entry: dict[str, Any] = {"kind": option.kind}
        if option.dest != option.name:
            entry["dest"] = option.dest
        if option.n_values is not None:
            entry["values"] = option.n_values
        if option.choices:
            entry["choices"] = list(option.choices)
        if _is_fact(option):
            entry["default"] = option.default
        lines.append(f"    {json.dumps(option.name)}: {json.dumps(entry)}")
    body = ",\n".join(lines)
    return f'{{\n  "openrlhf": {json.dumps(openrlhf_version)},\n  "options": {{\n{body}\n  }}\n}}\n'


def _from_json(name: str, entry: Mapping[str, Any]) -> Option:
    return Option(
        name=name,
        kind=entry["kind"],
        dest=entry.get("dest", name),
        n_values=entry.get("values"),
        choices=tuple(entry.get("choices", ())),
        default=entry.get("default"),
    )


def _likeness(name: str, other: str) -> float:
    return difflib.SequenceMatcher(None, name, other).ratio()


def _is_fact(option: Option) -> bool:
    """Whether the default says something: the run's name holds the time of day, and JSON has no infinity."""
    return option.default not in (None, math.inf) and option.name != "logger.wandb.run_name"


def _text(value: Any) -> str:
    if isinstance(value, float) and math.isfinite(value) and value < 0:
        # argparse takes -1e-05 for an option, but not -0.00001.
        return format(Decimal(repr(value)), "f")
    return str(value)
