"""Plugins whose framework lives elsewhere: they install beside each other and are found, without that framework.

vLLM, SGLang and OpenRLHF pin versions that exclude each other, so no extra of agentr1 brings them.
"""

from __future__ import annotations

import json
import re
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.packaging
Run = Callable[..., str]
Projects = dict[Path, dict[str, Any]]

#: What their environments bring, and agentr1's need not have.
ELSEWHERE = ("openrlhf", "ray", "deepspeed", "flash-attn", "vllm", "sglang", "sgl-kernel")

FIND_ALL = """
import json, sys
from importlib.util import find_spec
from agentr1_core.plugins import PluginManager

manager = PluginManager.discover()
broken = {info.dist: info.broken for info in manager.plugins() if info.broken}
light = [offer for offer in manager.offers() if offer.plugin.dist in json.loads(sys.argv[1])]
classes = [manager.get(offer.kind, f"{offer.plugin.dist}:{offer.name}") for offer in light]
print(json.dumps({
    "broken": broken,
    "dists": sorted({info.dist for info in manager.plugins()}),
    "abstract": [found.__name__ for found in classes if getattr(found, "__abstractmethods__", None)],
    "loaded": [name for name in ("torch", "transformers", "ray", "vllm", "sglang", "openrlhf") if name in sys.modules],
    "there": [name for name in ("ray", "vllm", "sglang", "openrlhf") if find_spec(name)],
}))
"""


def required(project: dict[str, Any]) -> set[str]:
    """Names of what a distribution requires in any case."""
    return {re.split(r"[\[<>=~! ;]", each)[0] for each in project["dependencies"]}


@pytest.fixture(scope="module")
def extras(projects: Projects) -> list[str]:
    """The extras of agentr1 whose distributions are all in the repository."""
    core = next(project for project in projects.values() if project["name"] == "agentr1")
    names = {project["name"] for project in projects.values()}
    return [
        extra
        for extra, requirements in core["optional-dependencies"].items()
        if {re.split(r"[\[<>=~! ]", each)[0] for each in requirements} <= names
    ]


@pytest.fixture(scope="module")
def layer(
    clean_python: Path, wheels: Path, extras: list[str], tmp_path_factory: pytest.TempPathFactory, run: Run
) -> Path:
    """The Python of an environment over the clean one, into which pip installed agentr1 with every such extra."""
    folder = tmp_path_factory.mktemp("layer") / "venv"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    purelib = "import sysconfig; print(sysconfig.get_path('purelib'))"
    below, above = (run(each, "-c", purelib, cwd=folder).strip() for each in (clean_python, python))
    Path(above, "below.pth").write_text(below)
    pip = (clean_python, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile")
    run(*pip, "--find-links", wheels, f"agentr1[{','.join(extras)}]==0.1.0", cwd=folder)
    return python


def test_openrlhf_is_among_the_extras(extras: list[str]) -> None:
    assert "openrlhf" in extras


def test_no_framework_comes_with_the_extras(layer: Path, clean_python: Path, run: Run) -> None:
    listed = run(clean_python, "-m", "pip", "--python", layer, "list", "--format", "json", cwd=layer.parent)

    names = {entry["name"].lower() for entry in json.loads(listed)}
    assert names.isdisjoint(ELSEWHERE)
    assert "agentr1-backend-openrlhf" in names


def test_every_plugin_is_found_and_its_classes_load_without_its_framework(
    layer: Path, projects: Projects, extras: list[str], run: Run
) -> None:
    plugins = {project["name"] for folder, project in projects.items() if folder.parent.name == "plugins"}
    light = sorted(
        project["name"]
        for project in projects.values()
        if project["name"] in plugins and not required(project) & {"torch", "transformers"}
    )

    found = json.loads(run(layer, "-c", FIND_ALL, json.dumps(light), cwd=layer.parent))

    assert found["broken"] == {}
    assert set(light) <= set(found["dists"])
    assert found["abstract"] == []
    assert found["loaded"] == []
    assert found["there"] == []


def test_a_launch_is_made_where_openrlhf_is_not(layer: Path, tmp_path: Path, run: Run) -> None:
    run_file = tmp_path / "run.yaml"
    run_file.write_text("recipe: quickstart\nmodel: some/model\nenv: adding\nrollout: {max_context: 512}\n")
    agentr1 = (layer, "-c", "from agentr1_core.cli.main import main; raise SystemExit(main())")

    printed = run(*agentr1, "openrlhf-command", run_file, "--backend", "openrlhf", "--engine", "openrlhf", cwd=tmp_path)

    assert "--rollout.batch_size 8" in printed
