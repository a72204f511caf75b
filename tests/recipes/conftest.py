"""Real data for the tests of recipes: the folder that AGENTR1_DATA names. What they ran on is told at the end."""

import os
from pathlib import Path

import pytest

_RAN_ON = pytest.StashKey[list[str]]()


@pytest.fixture
def real_data(request):
    """``real_data("gsm8k", "7,473 rows")``: a part of the folder; a test that asks for it is skipped without one."""
    root = os.environ.get("AGENTR1_DATA")
    if not root:
        pytest.skip("AGENTR1_DATA names no folder of real data")

    def part(name, what):
        path = Path(root) / name
        if not path.exists():
            pytest.skip(f"AGENTR1_DATA has no {name}")
        request.config.stash.setdefault(_RAN_ON, []).append(f"{request.node.name}: {what} of {path}")
        return path

    return part


def pytest_terminal_summary(terminalreporter, config):
    for line in config.stash.get(_RAN_ON, []):
        terminalreporter.write_line(f"ran on real data: {line}")
