"""What is known about plugins and their offers, as plain records.

``PluginManager`` writes them; ``agentr1 plugins``, error messages and tests read them. They hold no live state.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class PluginInfo:
    """One plugin, working or broken."""

    #: Its entry point's name, or the name it was registered under.
    name: str
    #: The distribution it came with (``agentr1-tools``), or ``"in-process"``.
    dist: str
    version: str
    #: The module the entry point names.
    module: str
    #: The names it offers, by kind (``{"tool": ("calculator", "search")}``); empty when broken.
    offers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: Why it cannot be used, in one line; ``None`` when it can.
    broken: str | None = None

    @property
    def title(self) -> str:
        """How messages call it: ``agentr1-tools 0.1.0``, or the plugin's own name when it has no distribution."""
        return f"plugin '{self.name}'" if self.dist == IN_PROCESS else f"{self.dist} {self.version}"

    @property
    def qualifier(self) -> str:
        """What stands before the colon to pick this plugin's offer among several of one name."""
        return self.name if self.dist == IN_PROCESS else self.dist


#: Stands in for the distribution of plugins that were registered by a running programme.
IN_PROCESS = "in-process"


@dataclass(frozen=True, slots=True)
class Offer:
    """One named thing that a plugin offers."""

    kind: str
    name: str
    #: The object, or the ``"package.module:Class"`` it is imported from at use.
    target: Any
    plugin: PluginInfo


def same_dist(left: str, right: str) -> bool:
    """Whether two spellings name one distribution (``Agentr1_Tools`` is ``agentr1-tools``; PEP 503)."""
    return _normalised(left) == _normalised(right)


def _normalised(dist: str) -> str:
    return re.sub(r"[-_.]+", "-", dist).lower()
