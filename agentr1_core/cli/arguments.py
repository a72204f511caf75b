"""Tell a run and its dotted overrides apart on a command line.

``train``, ``rollout`` and ``config`` pass on what they do not know as an option of their own.
"""

from __future__ import annotations

from collections.abc import Sequence

from agentr1_core.errors import ConfigError


def split_arguments(arguments: Sequence[str]) -> tuple[str, list[tuple[str, str]]]:
    """The run, and the overrides as key and YAML text.

    ``--key value`` and ``--key=value`` are the same; ``--key`` alone means true.

    Raises:
        ConfigError: There is no run, or more than one.
    """
    runs: list[str] = []
    overrides: list[tuple[str, str]] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--"):
            runs.append(argument)
            continue
        key, equals, value = argument[2:].partition("=")
        if not equals:
            value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
        overrides.append((key, value))
    if len(runs) != 1:
        said = f"{len(runs)} were given: {', '.join(runs)}" if runs else "none was given"
        raise ConfigError(
            f"Name one run file or recipe; {said}.", "For example: agentr1 train quickstart --algorithm.updates 5"
        )
    return runs[0], overrides
