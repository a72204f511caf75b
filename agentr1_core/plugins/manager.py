"""The plugin manager: finds plugins, checks them, and gives out what they offer by name.

The CLI, the configuration and the collector use one manager each run. It imports an offer only when somebody
asks for it, keeps a broken plugin from hurting the others, and never guesses between two offers of one name.
"""

from __future__ import annotations

import difflib
import traceback
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pluggy

from agentr1_core.errors import AgentR1Error, PluginError
from agentr1_core.plugins import hookspecs
from agentr1_core.plugins.discovery import (
    FoundPlugin,
    builtin_plugin,
    extra_named,
    how_to_install,
    installed_plugins,
)
from agentr1_core.plugins.hookspecs import ENTRY_POINT_GROUP, KINDS
from agentr1_core.plugins.info import IN_PROCESS, Offer, PluginInfo, same_dist
from agentr1_core.plugins.inspection import api_mismatch, read_offers, unknown_hooks
from agentr1_core.plugins.targets import import_target, is_target, reason

if TYPE_CHECKING:
    import typer


class PluginManager:
    """Knows all plugins of this process.

    ``PluginManager.discover()`` is what programmes use: the core's own offers and every installed plugin.
    ``PluginManager()`` is empty, for tests and for notebooks that register everything by hand.
    """

    def __init__(self) -> None:
        self._pluggy = pluggy.PluginManager(ENTRY_POINT_GROUP)
        self._pluggy.add_hookspecs(hookspecs)
        self._pluggy.add_hookcall_monitoring(before=_nothing, after=_name_the_plugin)
        self._plugins: dict[str, PluginInfo] = {}
        self._offers: list[Offer] = []

    @classmethod
    def discover(cls) -> PluginManager:
        """A manager with the built-in offers and every installed plugin; broken ones are listed, not raised."""
        manager = cls()
        manager.load((builtin_plugin(), *installed_plugins()))
        return manager

    @property
    def hook(self) -> pluggy.HookRelay:
        """pluggy's relay: ``manager.hook.agentr1_update(metrics=..., step=...)`` tells every observer.

        An observer that raises stops the call with a ``PluginError`` naming its plugin.
        """
        return self._pluggy.hook

    def load(self, found: Iterable[FoundPlugin]) -> None:
        """Import and register plugins; one that fails is kept in ``plugins()`` with its reason."""
        for plugin in found:
            info = PluginInfo(plugin.name, plugin.dist, plugin.version, plugin.module)
            key = f"{plugin.dist}:{plugin.name}"
            try:
                module = plugin.load()
                problem = api_mismatch(module, required=True)
                if problem is None:
                    self._add(key, module, info)
                    continue
            except PluginError as error:
                problem = error.problem
            except (Exception, SystemExit) as error:  # whatever a foreign module raises at import
                problem = reason(error)
            self._plugins[key] = replace(info, broken=problem)

    def register(self, plugin: object, name: str | None = None) -> PluginInfo:
        """Register a module or object of this process: an observer, or a local tool under a name.

        Args:
            plugin: Anything with functions or methods under ``@hookimpl``.
            name: How messages call it, and what picks its offers (``name:calculator``). By default its module's
                or class's name.

        Raises:
            PluginError: The name is taken, a hook is misspelt or has wrong arguments, the plugin was written for
                another API version, or an offering hook failed.
        """
        name = name or getattr(plugin, "__name__", None) or type(plugin).__name__
        if name in self._plugins:
            raise PluginError(f"A plugin named '{name}' is registered already.", "Pass another `name`.")
        module = getattr(plugin, "__module__", None) or getattr(plugin, "__name__", "")
        info = PluginInfo(name, IN_PROCESS, "", str(module))
        problem = api_mismatch(plugin, required=False)
        if problem is not None:
            raise PluginError(f"{info.title}: {problem}")
        try:
            return self._add(name, plugin, info)
        except PluginError as error:
            raise PluginError(f"{info.title}: {error.problem}") from error

    def unregister(self, name: str) -> None:
        """Remove what ``register`` added under this name, with all its offers."""
        if name not in self._plugins:
            raise PluginError(f"No plugin named '{name}' is registered.", f"Registered: {', '.join(self._plugins)}.")
        self._pluggy.unregister(name=name)
        removed = self._plugins.pop(name)
        self._offers = [offer for offer in self._offers if offer.plugin != removed]

    def plugins(self) -> tuple[PluginInfo, ...]:
        """All plugins, broken ones included, in the order they were registered."""
        return tuple(self._plugins.values())

    def offers(self, kind: str | None = None) -> tuple[Offer, ...]:
        """Everything on offer, or everything of one kind, ordered by kind and name."""
        if kind is not None:
            _check_kind(kind)
        chosen = [offer for offer in self._offers if kind in (None, offer.kind)]
        return tuple(sorted(chosen, key=lambda offer: (offer.kind, offer.name, offer.plugin.dist)))

    def names(self, kind: str) -> tuple[str, ...]:
        """The names ``get`` takes for this kind, sorted; a name that several plugins offer comes with its ``dist:``."""
        offers = self.offers(kind)
        count = Counter(offer.name for offer in offers)
        return tuple(
            offer.name if count[offer.name] == 1 else f"{offer.plugin.qualifier}:{offer.name}" for offer in offers
        )

    def get(self, kind: str, name: str) -> Any:
        """The class or object of that name, imported now.

        Args:
            kind: One of ``KINDS``: ``engine``, ``backend``, ``tool``, ``env``, ...
            name: A name on offer (``"calculator"``), one of a certain distribution (``"agentr1-tools:calculator"``)
                or a local object that nobody published (``"my_package.tools:Weather"``).

        Raises:
            PluginError: The name is unknown or ambiguous, or what it stands for cannot be imported.
        """
        offers = self.offers(kind)
        qualifier, colon, short = name.rpartition(":")
        matches = [
            offer
            for offer in offers
            if offer.name == (short if colon else name) and (not colon or _comes_from(offer.plugin, qualifier))
        ]
        if len(matches) == 1:
            return self._resolve(matches[0])
        if matches:
            givers = ", ".join(offer.plugin.title for offer in matches)
            choices = " or ".join(f"'{offer.plugin.qualifier}:{offer.name}'" for offer in matches)
            raise PluginError(f"The {kind} '{name}' is offered by several plugins: {givers}.", f"Say {choices}.")
        if is_target(name):
            return _import_local(kind, name)
        raise self._unknown(kind, name)

    def extend_cli(self, app: typer.Typer) -> None:
        """Let each plugin add its commands; one that fails is listed as broken and the others go on."""
        for key, info in tuple(self._plugins.items()):
            if info.broken is not None:
                continue
            others = [plugin for name, plugin in self._pluggy.list_name_plugin() if name != key]
            try:
                self._pluggy.subset_hook_caller("agentr1_cli", others)(app=app)
            except AgentR1Error as error:
                self._drop(key, error.problem)

    def _add(self, key: str, plugin: object, info: PluginInfo) -> PluginInfo:
        """Register with pluggy and collect the offers, or leave no trace and raise ``PluginError``."""
        try:
            self._pluggy.register(plugin, name=key)
        except (ValueError, pluggy.PluginValidationError) as error:
            # pluggy raises ValueError for a plugin registered twice and leaves hooks of a refused plugin behind.
            if self._pluggy.get_name(plugin) == key:
                self._pluggy.unregister(plugin)
            raise PluginError(" ".join(str(error).split())) from error
        try:
            problem = unknown_hooks(self._pluggy, plugin)
            if problem is not None:
                raise PluginError(problem)
            offered = read_offers(self._pluggy, plugin)
        except PluginError:
            self._pluggy.unregister(plugin)
            raise
        info = replace(info, offers={kind: tuple(sorted(names)) for kind, names in offered.items() if names})
        self._plugins[key] = info
        self._offers += [
            Offer(kind, name, target, info) for kind, names in offered.items() for name, target in names.items()
        ]
        return info

    def _drop(self, key: str, problem: str) -> None:
        """Turn a working plugin into a broken one."""
        info = self._plugins[key]
        self._pluggy.unregister(name=key)
        self._offers = [offer for offer in self._offers if offer.plugin != info]
        self._plugins[key] = replace(info, offers={}, broken=problem)

    def _resolve(self, offer: Offer) -> Any:
        if not isinstance(offer.target, str):
            return offer.target
        try:
            return import_target(offer.target)
        except Exception as error:  # foreign code at import
            # A missing submodule ("a.b") means that its package is there and does not fit.
            if isinstance(error, ModuleNotFoundError) and "." not in (error.name or ""):
                mend = f"Install what it needs: {how_to_install(offer.plugin.dist)}"
            else:
                mend = f"This is a fault of {offer.plugin.title} or of a package it needs; try another version of them."
            raise PluginError(f"{_failed(offer)}: {reason(error)}", mend) from error

    def _unknown(self, kind: str, name: str) -> PluginError:
        known = self.names(kind)
        plain = {offer.name for offer in self.offers(kind)}
        near = difflib.get_close_matches(name.rpartition(":")[2], plain, n=3)
        broken = [info for info in self._plugins.values() if info.broken is not None]
        problem = f"No plugin offers the {kind} '{name}'. Known: {', '.join(known) or 'none'}."
        for info in broken:
            problem += f"\n  {info.title} could not be loaded and may offer it: {info.broken}"
        install = extra_named(name)
        if near:
            mend = f"Did you mean {' or '.join(repr(each) for each in near)}?"
        elif install is not None:
            mend = f"Install it: {install}"
        elif broken:
            mend = f"Mend the broken plugin ({how_to_install(broken[0].dist)}), or use a name that is known."
        else:
            mend = "Install the plugin that offers it, or name a class of yours as 'package.module:Class'."
        return PluginError(problem, mend)


def _check_kind(kind: str) -> None:
    if kind not in KINDS:
        raise PluginError(f"'{kind}' is not a kind of plugin offer.", f"Use one of: {', '.join(KINDS)}.")


def _comes_from(plugin: PluginInfo, qualifier: str) -> bool:
    return qualifier == plugin.name or same_dist(qualifier, plugin.dist)


def _failed(offer: Offer) -> str:
    return f"The {offer.kind} '{offer.name}' ({offer.target}) of {offer.plugin.title} cannot be imported"


def _import_local(kind: str, name: str) -> Any:
    try:
        return import_target(name)
    except Exception as error:  # the user's own code at import
        raise PluginError(
            f"The {kind} '{name}' cannot be imported: {reason(error)}",
            "Check the spelling, and that the module is on the Python path (PYTHONPATH, or installed).",
        ) from error


def _nothing(hook_name: str, impls: Sequence[pluggy.HookImpl], arguments: Mapping[str, Any]) -> None:
    """pluggy asks for a callback before the call too."""


def _name_the_plugin(
    outcome: pluggy.Result[Any], hook_name: str, impls: Sequence[pluggy.HookImpl], arguments: Mapping[str, Any]
) -> None:
    """Turn what an observer raised into a ``PluginError`` that says whose observer it was."""
    error = outcome.exception
    if not isinstance(error, Exception) or isinstance(error, AgentR1Error):
        return
    codes = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    culprits = [impl.plugin_name for impl in impls if getattr(impl.function, "__code__", None) in codes]
    if culprits:
        named = PluginError(
            f"{hook_name} of plugin '{culprits[0]}' failed: {reason(error)}", "Mend it, or run without that plugin."
        )
        named.__cause__ = error
        outcome.force_exception(named)
