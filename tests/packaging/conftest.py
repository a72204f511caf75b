"""Builds all wheels once, and one clean environment that holds ``agentr1[trl]`` from them."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
Run = Callable[..., str]


def run_command(*command: str | Path, cwd: Path = ROOT) -> str:
    """Run to the end and return standard output; a failure shows all that the command printed."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{' '.join(map(str, command))} failed:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def run() -> Run:
    """``run("command", "argument", cwd=...)`` gives the command's standard output."""
    return run_command


@pytest.fixture(scope="session")
def projects() -> dict[Path, dict[str, object]]:
    """Each folder of the repository that is a distribution, with its ``[project]`` table."""
    files = [ROOT / "pyproject.toml", *sorted(ROOT.glob("plugins/*/pyproject.toml"))]
    files += [ROOT / name / "pyproject.toml" for name in ("tools", "recipes")]
    return {file.parent: tomllib.loads(file.read_text())["project"] for file in files if file.exists()}


@pytest.fixture(scope="session")
def wheels() -> Path:
    """The folder with a wheel of every distribution, built by ``make wheels``."""
    run_command("make", "wheels")
    return ROOT / "dist"


@pytest.fixture(scope="session")
def clean_python(wheels: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a new environment into which pip installed ``agentr1[trl]`` from the wheels."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    constraints = ROOT / "requirements" / "constraints.txt"
    run_command(ROOT / "scripts" / "install-torch.sh", python, constraints)
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    install = (python, "-m", "pip", "install", "--quiet", "--no-compile", "--constraint", constraints)
    run_command(*install, "--find-links", wheels, f"agentr1[trl]=={version}", cwd=folder)
    return python


@pytest.fixture(scope="session")
def thirdparty_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the example third-party tool package."""
    folder = tmp_path_factory.mktemp("thirdparty")
    source = Path(__file__).parent / "thirdparty_tool"
    build = (sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation")
    run_command(*build, "--wheel-dir", folder, source)
    (wheel,) = folder.glob("acme_weather-*.whl")
    return wheel
