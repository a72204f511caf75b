"""Runs a function on a module right after the module's own code, whenever it is imported."""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable, Mapping
from typing import Any

Patch = Callable[[Any], None]


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, patches: Mapping[str, Patch]) -> None:
        self._patches = dict(patches)
        self._looking: set[str] = set()

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in self._patches or name in self._looking:
            return None
        self._looking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking.discard(name)
        if spec is None or spec.loader is None:
            return None
        run, patch = spec.loader.exec_module, self._patches[name]

        def exec_module(module: Any) -> None:
            run(module)
            patch(module)

        spec.loader.exec_module = exec_module
        return spec


def register(patches: Mapping[str, Patch]) -> None:
    """Apply each patch after its module is imported."""
    sys.meta_path.insert(0, _Finder(patches))
