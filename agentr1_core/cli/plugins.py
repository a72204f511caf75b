"""``agentr1 plugins``: what was found, what each plugin offers, and what is broken and why."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginInfo, PluginManager


def plugins(manager: PluginManager, *, as_json: bool = False) -> None:
    """Print every plugin; nothing they offer is imported."""
    if as_json:
        print(json.dumps([_as_dict(info) for info in manager.plugins()], indent=2))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 1, 0))
    for column in ("Plugin", "Version", "Offers"):
        table.add_column(column, header_style="bold", overflow="fold")
    for info in manager.plugins():
        table.add_row(info.dist if info.dist != "in-process" else info.name, info.version, _describe(info))
    Console().print(table)


def _describe(info: PluginInfo) -> Any:
    from rich.text import Text

    if info.broken is not None:
        return Text.assemble(("broken: ", "bold red"), (info.broken, "red"))
    if not info.offers:
        return Text("no offers; observes runs or adds commands", style="dim")
    lines = [Text.assemble((f"{kind}: ", "cyan"), ", ".join(names)) for kind, names in info.offers.items()]
    return Text("\n").join(lines)


def _as_dict(info: PluginInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "dist": info.dist,
        "version": info.version,
        "module": info.module,
        "offers": {kind: list(names) for kind, names in info.offers.items()},
        "broken": info.broken,
    }
