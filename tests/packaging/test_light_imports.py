"""The core and its command start without loading any framework."""

from __future__ import annotations

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "trl", "accelerate", "peft", "datasets", "vllm", "sglang", "openrlhf", "ray")

CORE = "import agentr1_core"
HELP = """
from agentr1_core.cli.main import main
assert main(["--help"]) == 0
"""


@pytest.mark.parametrize("programme", [CORE, HELP], ids=["import", "help"])
def test_no_framework_is_loaded(programme: str) -> None:
    check = f"import sys\n{programme}\nprint()\nprint([name for name in {HEAVY} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
