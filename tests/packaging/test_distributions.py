"""What the project files and the built wheels promise."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

Projects = dict[Path, dict[str, Any]]


def test_all_distributions_carry_one_version(projects: Projects) -> None:
    assert {project["version"] for project in projects.values()} == {"0.1.0"}


def test_siblings_are_pinned_to_the_same_minor_version(projects: Projects) -> None:
    names = {project["name"] for project in projects.values()}
    for project in projects.values():
        extras = project.get("optional-dependencies", {}).values()
        for requirement in (*project["dependencies"], *(each for extra in extras for each in extra)):
            name = re.split(r"[\[<>=~! ]", requirement)[0]
            if name in names and name != project["name"]:
                assert requirement.endswith(">=0.1,<0.2"), f"{project['name']} requires {requirement}"


def test_the_core_requires_no_framework(projects: Projects) -> None:
    core = next(project for project in projects.values() if project["name"] == "agentr1")
    required = {re.split(r"[\[<>=~! ]", requirement)[0] for requirement in core["dependencies"]}

    assert not required & {"torch", "transformers", "trl", "vllm", "sglang", "openrlhf", "accelerate", "peft"}


@pytest.mark.packaging
def test_every_distribution_has_a_typed_wheel_with_its_licence(wheels: Path, projects: Projects) -> None:
    for project in projects.values():
        (wheel,) = wheels.glob(f"{project['name'].replace('-', '_')}-{project['version']}-py3-none-any.whl")
        names = ZipFile(wheel).namelist()
        metadata = ZipFile(wheel).read(next(name for name in names if name.endswith("/METADATA"))).decode()

        assert any(name.endswith("/py.typed") for name in names), f"{wheel.name} has no py.typed"
        assert "License-Expression: MIT" in metadata, f"{wheel.name} names no licence"
        packages = {name.split("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}
        assert packages == {project["name"].replace("-", "_") if project["name"] != "agentr1" else "agentr1_core"}
