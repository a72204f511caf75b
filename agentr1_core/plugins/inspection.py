"""Check one plugin: its API version, the spelling of its hooks, and what its offering hooks return.

``PluginManager`` asks these questions before it accepts a plugin. The functions change nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

import pluggy

from agentr1_core.errors import PluginError
from agentr1_core.plugins.hookspecs import API_VERSION, KINDS
from agentr1_core.plugins.targets import is_target, reason


def api_mismatch(plugin: object, *, required: bool) -> str | None:
    """One line saying why the plugin does not fit this core, or ``None`` when it does.

    Args:
        plugin: The module or object.
        required: Whether it must state a version at all; objects of the running programme need not.
    """
    stated = getattr(plugin, "agentr1_api_version", None)
    if stated is None and not required:
        return None
    if stated is None:
        return f"it does not state its API version: add `agentr1_api_version = {API_VERSION}` to the plugin module"
    if stated == API_VERSION:
        return None
    older = "upgrade the plugin" if isinstance(stated, int) and stated < API_VERSION else "upgrade agentr1"
    return f"it was written for plugin API {stated!r}, this agentr1 has {API_VERSION}: {older}"


def unknown_hooks(manager: pluggy.PluginManager, plugin: object) -> str | None:
    """One line naming a hook implementation that no specification knows, or ``None``."""
    for caller in manager.get_hookcallers(plugin) or ():
        optional = any(impl.optionalhook for impl in caller.get_hookimpls() if impl.plugin is plugin)
        if caller.has_spec() or optional:
            continue
        known = [name for name in dir(manager.hook) if name.startswith("agentr1_") and _has_spec(manager, name)]
        near = difflib.get_close_matches(caller.name, known, n=1)
        return f"'{caller.name}' is not a hook" + (f"; did it mean '{near[0]}'?" if near else "")
    return None


def read_offers(manager: pluggy.PluginManager, plugin: object) -> dict[str, Mapping[str, Any]]:
    """What each offering hook of this plugin returns, by kind.

    Raises:
        PluginError: A hook raised, or returned something that is not a mapping of names.
    """
    offered: dict[str, Mapping[str, Any]] = {}
    for kind, hook_name in KINDS.items():
        for impl in getattr(manager.hook, hook_name).get_hookimpls():
            if impl.plugin is plugin:
                offered[kind] = _checked(_call(impl, hook_name), hook_name)
    return offered


def _call(impl: pluggy.HookImpl, hook_name: str) -> Any:
    try:
        return impl.function()
    except Exception as error:  # foreign code
        raise PluginError(f"its {hook_name} hook failed: {reason(error)}") from error


def _checked(offers: Any, hook_name: str) -> Mapping[str, Any]:
    if not isinstance(offers, Mapping):
        raise PluginError(
            f"{hook_name} returned {type(offers).__name__}; it must return a mapping from names to "
            "classes or 'package.module:Class' strings"
        )
    for name, target in offers.items():
        if not isinstance(name, str) or not name or ":" in name:
            raise PluginError(f"{hook_name} offers the name {name!r}; names are text without a colon")
        if isinstance(target, str) and not is_target(target):
            raise PluginError(f"{hook_name} offers '{name}' as {target!r}; write it as 'package.module:Class'")
    return offers


def _has_spec(manager: pluggy.PluginManager, name: str) -> bool:
    return bool(getattr(manager.hook, name).has_spec())
