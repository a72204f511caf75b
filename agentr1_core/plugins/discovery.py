"""Read which plugins are installed, and which extras of ``agentr1`` would bring more.

Everything comes from the metadata of the installed distributions (``importlib.metadata``). Listing imports no
plugin; only ``PluginManager`` loads what is listed here.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentr1_core.plugins.hookspecs import ENTRY_POINT_GROUP
from agentr1_core.plugins.info import same_dist

#: The distribution that ships the core; its extras name the plugins that belong to the project.
CORE_DIST = "agentr1"
#: The module of the core that offers what comes built in.
BUILTIN_MODULE = "agentr1_core.builtin"


@dataclass(frozen=True, slots=True)
class FoundPlugin:
    """A plugin that was found and not yet imported."""

    name: str
    dist: str
    version: str
    module: str
    load: Callable[[], Any]


def installed_plugins() -> tuple[FoundPlugin, ...]:
    """Every entry point of the group ``agentr1``, ordered by distribution and name."""
    from importlib.metadata import entry_points

    found = [
        FoundPlugin(
            name=point.name,
            dist=point.dist.name if point.dist else point.module,
            version=point.dist.version if point.dist else "unknown",
            module=point.value,
            load=point.load,
        )
        for point in entry_points(group=ENTRY_POINT_GROUP)
    ]
    return tuple(sorted(found, key=lambda plugin: (plugin.dist.lower(), plugin.name)))


def builtin_plugin() -> FoundPlugin:
    """The core's own offers, which are a plugin like any other."""
    from importlib import import_module
    from importlib.metadata import PackageNotFoundError, version

    try:
        core_version = version(CORE_DIST)
    except PackageNotFoundError:
        core_version = "(not installed)"
    return FoundPlugin("builtin", CORE_DIST, core_version, BUILTIN_MODULE, lambda: import_module(BUILTIN_MODULE))


def extras() -> dict[str, tuple[str, ...]]:
    """The extras of ``agentr1`` and the distributions each pulls in; empty when the core is not installed."""
    from importlib.metadata import PackageNotFoundError, metadata

    try:
        core = metadata(CORE_DIST)
    except PackageNotFoundError:
        return {}
    pulled: dict[str, tuple[str, ...]] = dict.fromkeys(core.get_all("Provides-Extra") or (), ())
    for requirement in core.get_all("Requires-Dist") or ():
        match = re.match(r"([\w.-]+)[^;]*;.*extra\s*==\s*['\"]([\w.-]+)['\"]", requirement)
        if match and match[2] in pulled:
            pulled[match[2]] += (match[1],)
    return pulled


def how_to_install(dist: str) -> str:
    """The pip command that brings a distribution with all it needs."""
    smallest = sorted(extras().items(), key=lambda extra: len(extra[1]))  # `trl` rather than `all`
    for extra, dists in smallest:
        if any(same_dist(dist, pulled) for pulled in dists):
            return f"pip install '{CORE_DIST}[{extra}]'"
    return f"pip install '{dist}'"


def extra_named(name: str) -> str | None:
    """The pip command for the extra of this name (``vllm``), if ``agentr1`` has one."""
    for extra in extras():
        if same_dist(extra, name):
            return f"pip install '{CORE_DIST}[{extra}]'"
    return None
