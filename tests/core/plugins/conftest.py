"""Make small distributions on disk that importlib.metadata finds like any installed one."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """``install("acme-tools", "acme_tools", "<source>")`` puts a plugin distribution on the path for one test."""
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    modules: list[str] = []

    def _install(dist: str, module: str, source: str, *, version: str = "1.0.0", entry: str = "main") -> None:
        (site / f"{module}.py").write_text(textwrap.dedent(source))
        info = site / f"{dist.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {dist}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[agentr1]\n{entry} = {module}\n")
        modules.append(module)

    yield _install
    for module in modules:
        sys.modules.pop(module, None)
