"""``pip install agentr1[trl]`` from a folder of wheels, and a third-party tool package on top."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.packaging
Run = Callable[..., str]

LIST_PLUGINS = """
import json
from agentr1_core.plugins import PluginManager

manager = PluginManager.discover()
backend, engine = manager.get("backend", "trl"), manager.get("engine", "transformers")
print(json.dumps({
    "broken": {info.dist: info.broken for info in manager.plugins() if info.broken},
    "dists": sorted({info.dist for info in manager.plugins()}),
    "modules": [backend.__module__.split(".")[0], engine.__module__.split(".")[0]],
}))
"""

USE_THE_TOOL = """
import asyncio, json
from agentr1_core.plugins import PluginManager
from agentr1_core.tool import ToolContext, call_tool

manager = PluginManager.discover()
tools = {"weather": manager.get("tool", "weather")(), "to_fahrenheit": manager.get("tool", "to_fahrenheit")}

def use(name, **arguments):
    return asyncio.run(call_tool(tools, name, arguments, ToolContext())).response.text

print(json.dumps([use("weather", city="Cairo"), use("weather", city="Atlantis"), use("to_fahrenheit", celsius=31)]))
"""


def test_the_trl_extra_brings_its_plugins(clean_python: Path, run: Run) -> None:
    found = json.loads(run(clean_python, "-c", LIST_PLUGINS, cwd=clean_python.parent))

    assert found == {
        "broken": {},
        "dists": ["agentr1", "agentr1-backend-trl", "agentr1-engine-transformers", "agentr1-recipes"],
        "modules": ["agentr1_backend_trl", "agentr1_engine_transformers"],
    }


def test_the_command_lists_them(clean_python: Path, run: Run) -> None:
    listed = run(clean_python.parent / "agentr1", "plugins", cwd=clean_python.parent)

    assert "agentr1-backend-trl" in listed
    assert "agentr1-engine-transformers" in listed


def test_a_third_party_tool_is_used_by_its_name(clean_python: Path, thirdparty_wheel: Path, run: Run) -> None:
    run(clean_python, "-m", "pip", "install", "--quiet", "--no-deps", thirdparty_wheel, cwd=clean_python.parent)
    try:
        answers = json.loads(run(clean_python, "-c", USE_THE_TOOL, cwd=clean_python.parent))
    finally:
        run(clean_python, "-m", "pip", "uninstall", "--quiet", "--yes", "acme-weather", cwd=clean_python.parent)

    assert answers == ["31", "The tool 'weather' failed: No weather for Atlantis; known: Aberdeen, Cairo.", "87.8"]
