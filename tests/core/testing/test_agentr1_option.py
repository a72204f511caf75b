"""``pytest --agentr1 NAME``, run as a user runs it."""

import subprocess
import sys

import pytest

from agentr1_core.errors import PluginError
from agentr1_core.testing.example_arguments import example_calls
from agentr1_core.testing.installed_offer import kits_of
from agentr1_core.tool import tool

PLUGIN = """\
from agentr1_core.plugins import hookimpl
from agentr1_core.tool import BaseTool

agentr1_api_version = 1


class Teapot(BaseTool):
    name = "teapot"
    description = "Pours tea."
    parameters = {
        "type": "object",
        "properties": {"cups": {"type": "integer", "examples": [1, 2]}},
        "required": ["cups"],
    }
    poured = 0

    async def execute(self, args, ctx):
        self.poured += args["cups"]
        return f"{self.poured} cups so far"


@hookimpl
def agentr1_tools():
    return {"teapot": Teapot}
"""


@pytest.fixture
def run_pytest(tmp_path):
    """Runs pytest in an empty folder, next to an installed plugin with a leaky tool."""
    (tmp_path / "teapot_plugin.py").write_text(PLUGIN)
    info = tmp_path / "teapot-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: teapot\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[agentr1]\nteapot = teapot_plugin\n")
    (tmp_path / "test_of_my_own.py").write_text("def test_mine():\n    assert True\n")

    def run(*arguments):
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rf", *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


def test_what_a_plugin_offers_is_tested_by_name(run_pytest):
    done = run_pytest("--agentr1", "estimator:grpo", "--agentr1", "hermes")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "test_of_my_own" not in done.stdout
    assert "test_mine" not in done.stdout


def test_a_broken_offer_fails_and_the_rule_is_named(run_pytest):
    done = run_pytest("--agentr1", "tool:teapot", "test_of_my_own.py", "-v")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Rule 'tool/no-leaks' is broken." in done.stdout
    assert "test_mine PASSED" in done.stdout
    assert "test_it_describes_itself PASSED" in done.stdout


def test_an_environment_is_built_from_a_run_file(run_pytest):
    done = run_pytest("--agentr1", "env:adding", "--agentr1-run", "quickstart")
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_unknown_name_is_told_before_anything_runs(run_pytest):
    done = run_pytest("--agentr1", "nothing_at_all")
    assert done.returncode == 4
    assert "Nothing that has a kit is named 'nothing_at_all'" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("name", "run", "said"),
    [
        ("tool:no_such", None, "no_such"),
        ("engine:transformers", None, "--agentr1-run"),
        ("env:tools", "quickstart", "plays the environment 'adding'"),
        ("backend:trl", None, "--agentr1-run"),
        ("tool:search", None, "corpus"),
    ],
)
def test_what_cannot_be_built_says_what_is_missing(name, run, said):
    with pytest.raises(PluginError) as caught:
        kits_of([name], run)
    assert said in str(caught.value)


def test_arguments_come_from_examples_or_are_guessed():
    @tool
    def order(what: str, cups: int, milk: bool = False, notes: list[str] | None = None) -> str:
        """Order tea."""
        return f"{cups} {what}"

    calls, known = example_calls(order)
    assert calls == [{"what": "text", "cups": 1, "milk": False, "notes": None}]
    assert not known

    order.parameters = {
        "type": "object",
        "properties": {"cups": {"type": "integer", "examples": [1, 2]}, "size": {"enum": ["s", "m", "l"]}},
        "required": ["cups", "size"],
    }
    calls, known = example_calls(order)
    assert calls == [{"cups": 1, "size": "s"}, {"cups": 2, "size": "m"}, {"cups": 1, "size": "l"}]
    assert known
