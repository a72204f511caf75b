"""The options of OpenRLHF that a run file gives under ``backend`` and ``engine``.

Keys may be dotted (``actor.adam.lr: 1e-6``), nested (``actor: {adam: {lr: 1e-6}}``) or both. ``translate`` reads them
once; whatever is no option, or not one for step rows, is refused here with its key.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from agentr1_backend_openrlhf.command.not_passed_on import ELSEWHERE, refuse
from agentr1_backend_openrlhf.command.options import Options, Value
from agentr1_core.errors import ConfigError


def given_options(
    settings: Mapping[str, Any], engine: Mapping[str, Any], options: Options, own: Collection[str]
) -> dict[str, Value]:
    """Option names and values; keys set to nothing (``null``) are as if left out.

    Args:
        settings: The section ``backend`` without its name.
        engine: The section ``engine`` without its name.
        options: What OpenRLHF takes.
        own: Keys of ``backend`` that are not OpenRLHF's.

    Raises:
        ConfigError: A key is unknown, given twice, refused, or has a value that OpenRLHF would not take.
    """
    found: dict[str, Value] = {}
    for key, value in flat({key: value for key, value in settings.items() if key not in own}):
        name, place = key.removeprefix("--"), f"backend.{key}"
        if name not in options:
            raise _unknown(name, place, options, own)
        refuse(name, place)
        if name in found:
            raise ConfigError(f"`{place}` is given twice, dotted and nested.", "Keep one.")
        if value is not None:
            options.check(name, value, place)
            found[name] = value
    for setting, value in engine.items():
        name = f"vllm.{setting}"
        if name in found:
            raise ConfigError(f"`backend.{name}` and `engine.{setting}` say the same.", "Keep one.")
        if value is not None:
            options.check(name, value, f"engine.{setting}")
            found[name] = value
    return found


def flat(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The dotted keys of a section and their values, however deeply they are nested."""
    for key, value in section.items():
        dotted = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping):
            yield from flat(value, dotted)
        else:
            yield dotted, value


def _unknown(name: str, place: str, options: Options, own: Collection[str]) -> ConfigError:
    near = options.nearest(name)
    if near is not None:
        mend = f"Did you mean `{ELSEWHERE.get(near, f'backend.{near}')}`?"
    else:
        section = name.partition(".")[0]
        inside = [option.name for option in options if option.name.startswith(f"{section}.")]
        known = inside or [*own, *dict.fromkeys(f"{option.name.partition('.')[0]}.*" for option in options)]
        mend = f"Known here: {', '.join(known)}."
    return ConfigError(f"`{place}`: OpenRLHF {options.version} has no option --{name}.", mend)
