"""``examples/trl_existing_script.py``: both scripts run, learn, and differ in at most five lines."""

import ast
import difflib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "examples" / "trl_existing_script.py"


def test_the_two_scripts_differ_in_at_most_five_lines():
    source = SCRIPT.read_text()
    body = {
        node.name: ast.get_source_segment(source, node).splitlines()
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
    }
    lines = list(difflib.ndiff(body["train_plain"], body["train_step_level"]))
    assert 1 <= sum(line.startswith("+ ") for line in lines) <= 5
    assert sum(line.startswith("- ") for line in lines) <= 5


@pytest.mark.parametrize("options", [[], ["--step-level"]])
def test_both_run_and_learn(options):
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, str(SCRIPT), "--updates", "12", *options]
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    first, last = map(float, re.findall(r"(\d+\.\d+) in the", done.stdout))
    assert last > first
