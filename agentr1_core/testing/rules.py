"""Names for what the conformance kit checks: a check that fails says which rule is broken.

Every check of a kit carries one rule, such as ``tool/schema``; ``rules_of`` lists those of a kit. It runs nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

P = ParamSpec("P")
R = TypeVar("R")


def rule(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a check with the rule it stands for; whatever makes it fail is told together with that name."""

    def mark(check: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(check)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return check(*args, **kwargs)
            except (Exception, pytest.fail.Exception) as error:
                if isinstance(error, NotImplementedError) and str(error).startswith("Override "):
                    raise  # the kit is not filled in yet
                said = str(error).strip() or "no message"
                raise AssertionError(f"Rule '{name}' is broken. {type(error).__name__}: {said}") from error

        checked.__dict__["agentr1_rule"] = name
        return checked

    return mark


def rules_of(kit: type) -> dict[str, Callable[..., object]]:
    """The checks of a kit by the name of their rule."""
    checks = (getattr(kit, attribute) for attribute in dir(kit) if attribute.startswith("test_"))
    return {check.agentr1_rule: check for check in checks if hasattr(check, "agentr1_rule")}
