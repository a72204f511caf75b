"""What ``agentr1 certify`` found: one check for each promise about tokens, log-probs and gradients.

A backend measures and fills it in; the command prints it. It holds numbers and their limits, and decides nothing but
whether all limits were kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Check:
    """One measured promise."""

    #: A short name, such as ``gradient: linear rows``.
    name: str
    #: What was measured; ``None`` where it does not apply.
    value: float | None
    #: What it may be: at most this, or exactly this with ``exact``. ``None`` where there is no limit.
    limit: float | None = None
    exact: bool = False
    #: Why it does not apply, or what it means.
    note: str = ""

    @property
    def passed(self) -> bool:
        """Whether the limit was kept. What does not apply, and what has no limit, never fails; NaN always does."""
        if self.value is None or self.limit is None:
            return True
        return self.value == self.limit if self.exact else self.value <= self.limit


@dataclass(frozen=True, slots=True)
class Certificate:
    """All checks of one stack, model and task."""

    checks: tuple[Check, ...]
    #: What was looked at: model, engine, versions, episodes.
    about: Mapping[str, Any]

    @property
    def passed(self) -> bool:
        """Whether every check did."""
        return all(check.passed for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "passed": self.passed,
            "about": dict(self.about),
            "checks": [
                {
                    "name": check.name,
                    "value": check.value,
                    "limit": check.limit,
                    "passed": check.passed,
                    "note": check.note,
                }
                for check in self.checks
            ],
        }
