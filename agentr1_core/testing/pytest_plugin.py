"""pytest plugin: ``pytest --agentr1 tool:calculator`` runs the conformance kit on what an installed plugin offers.

pytest loads it by itself. It also makes assertions in the kits as telling as in your own tests. Without the option it
imports nothing else.
"""

from __future__ import annotations

import types
from pathlib import Path

import pytest

pytest.register_assert_rewrite(
    *(f"agentr1_core.testing.{kit}_kit" for kit in ("backend", "engine", "env", "estimator", "format", "tool"))
)

#: The file that pytest collects for ``--agentr1``.
_FILE = Path(__file__).with_name("installed_offer.py")
_KITS = pytest.StashKey[dict[str, type]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """The two options."""
    group = parser.getgroup("agentr1", "agentr1 conformance kit")
    group.addoption(
        "--agentr1",
        action="append",
        default=[],
        metavar="NAME",
        help="Test what a plugin offers by this name, such as tool:calculator or estimator:grpo. May be repeated.",
    )
    group.addoption(
        "--agentr1-run",
        metavar="RUN",
        help="Run file or recipe that says how it is built: settings, tasks, model. Engines, backends and "
        "environments need one.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the kits and have pytest collect them; alone, unless files were named too."""
    names = config.getoption("--agentr1")
    if not names:
        return
    from agentr1_core.errors import AgentR1Error
    from agentr1_core.testing.installed_offer import kits_of

    try:
        config.stash[_KITS] = kits_of(names, config.getoption("--agentr1-run"))
    except AgentR1Error as error:
        raise pytest.UsageError(str(error)) from error
    named_files = config.args_source is pytest.Config.ArgsSource.ARGS
    config.args[:] = [*(config.args if named_files else ()), str(_FILE)]


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the kits in place of a test file."""
    if file_path != _FILE or _KITS not in parent.config.stash:
        return None
    return _Kits.from_parent(parent, path=file_path)


class _Kits(pytest.Module):
    """A module that holds the kits."""

    def _getobj(self) -> types.ModuleType:
        module = types.ModuleType("agentr1_offers", "The kits of what --agentr1 names.")
        kits: dict[str, type] = self.config.stash[_KITS]
        vars(module).update(kits)
        return module
