"""``agentr1 certify``: the table, the exit code, JSON, and what is refused; backends do the measuring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentr1_core.backend import TrainingJob
from agentr1_core.certificate import Certificate, Check
from agentr1_core.plugins import PluginManager


@pytest.fixture
def asked(plugins: PluginManager, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, str | None]]:
    """The backend of this folder measures one gradient, which a fault puts off; what it was asked is kept."""
    calls = []

    def certify(self: Any, job: TrainingJob, *, n_groups: int = 2, fault: str | None = None) -> Certificate:
        calls.append((n_groups, fault))
        gradient = Check("gradient, merged rows", 0.5 if fault else 1e-7, 2e-6)
        return Certificate(
            (gradient, Check("gradient, token tree", None, note="a sliding window")), {"model": "Parrot"}
        )

    monkeypatch.setattr(plugins.get("backend", "play"), "certify", certify, raising=False)
    return calls


def test_a_certificate_is_shown_and_leaves_nothing_behind(agentr1: Any, asked: Any, tmp_path: Path) -> None:
    said = agentr1("certify", "capitals", "-n", "3")
    assert said.code == 0, said.err
    for part in ("gradient, merged rows", "<= 2e-06", "pass", "a sliding window", "model Parrot", "Certified."):
        assert part in said.out
    assert asked == [(3, None)]
    assert not list(tmp_path.iterdir())


def test_a_failed_certificate_fails_the_command(agentr1: Any, asked: Any) -> None:
    said = agentr1("certify", "capitals", "--fault", "shift")
    assert said.code == 1
    assert "FAIL" in said.out
    assert "Not certified. Failed: gradient, merged rows" in said.out
    assert asked == [(2, "shift")]


def test_json_for_programmes(agentr1: Any, asked: Any) -> None:
    said = agentr1("certify", "capitals", "--json", "--fault", "stale")
    found = json.loads(said.out)
    assert (said.code, found["passed"]) == (1, False)
    assert [check["passed"] for check in found["checks"]] == [False, True]


def test_what_is_refused(agentr1: Any) -> None:
    assert "--fault is 'luck'" in agentr1("certify", "capitals", "--fault", "luck").err
    assert "does not support `agentr1 certify`" in agentr1("certify", "capitals").err
