"""Runs one rule of a kit outside pytest's collection, on a plugin that may well break it."""

import inspect
import itertools

import pytest
from hypothesis import Phase, settings

from agentr1_core.testing import estimator_kit, format_kit
from agentr1_core.testing.rules import rules_of


def _run_rule(kit, rule, **fixtures):
    check = rules_of(kit)[rule]
    marks = [mark for mark in getattr(check, "pytestmark", []) if mark.name == "parametrize"]
    for values in itertools.product(*(mark.args[1] for mark in marks)):
        given = dict(zip((mark.args[0] for mark in marks), values, strict=True))
        wanted = [name for name in inspect.signature(check).parameters if name != "self" and name not in given]
        check(kit(), **given, **{name: fixtures[name] for name in wanted})


@pytest.fixture(scope="session")
def run_rule():
    """``run_rule(Kit, "tool/schema", **fixtures)``: run the check of that rule, for all its parameters."""
    return _run_rule


@pytest.fixture
def told(monkeypatch):
    """``told(Kit, "tool/schema", **fixtures)``: what the kit says of a plugin that breaks the rule."""
    for kit in (estimator_kit, format_kit):  # the first counterexample will do
        monkeypatch.setattr(kit, "_law", settings(kit._law, phases=[Phase.generate]))

    def message(kit, rule, **fixtures):
        with pytest.raises(AssertionError) as caught:
            _run_rule(kit, rule, **fixtures)
        said = str(caught.value)
        assert said.startswith(f"Rule '{rule}' is broken."), said
        return said

    return message
