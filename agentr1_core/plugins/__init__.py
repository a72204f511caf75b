"""Plugins: the hooks, the markers a plugin uses, and the manager that finds and checks plugins.

Plugin authors import ``hookimpl`` from here; programmes call ``PluginManager.discover()``. Importing this package
imports no plugin.
"""

from agentr1_core.plugins.hookspecs import API_VERSION, ENTRY_POINT_GROUP, KINDS, Offers, hookimpl, hookspec
from agentr1_core.plugins.info import Offer, PluginInfo
from agentr1_core.plugins.manager import PluginManager

__all__ = [
    "API_VERSION",
    "ENTRY_POINT_GROUP",
    "KINDS",
    "Offer",
    "Offers",
    "PluginInfo",
    "PluginManager",
    "hookimpl",
    "hookspec",
]
