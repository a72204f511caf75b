"""A second environment that sees everything this one has, so that packages can be installed and thrown away."""

import os
import site
import stat
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


class Workshop:
    """Runs commands as a user with an activated environment would."""

    def __init__(self, folder):
        self.folder = folder
        venv.create(folder / "venv", with_pip=False)
        self.bin = folder / "venv" / "bin"
        (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
        # addsitedir, unlike a plain path, also follows what is installed there as editable.
        lines = [f"import site; site.addsitedir({path!r})" for path in site.getsitepackages()]
        (packages / "everything.pth").write_text("\n".join(lines) + "\n")
        for command, run in {
            "pip": "from pip._internal.cli.main import main",
            "pytest": "from pytest import console_main as main",
            "agentr1": "from agentr1_core.cli.main import main",
        }.items():
            script = self.bin / command
            script.write_text(f"#!{self.bin / 'python'}\nimport sys\n{run}\nsys.exit(main())\n")
            script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def run(self, *command, cwd=None, code=0):
        """Standard output of a command; a failure shows all that it printed."""
        path = f"{self.bin}{os.pathsep}{os.environ['PATH']}"
        # Nothing is to be fetched: what the package needs is installed already.
        quiet = {"PIP_NO_DEPS": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
        environment = {**os.environ, **quiet, "PATH": path, "VIRTUAL_ENV": str(self.folder / "venv"), "COLUMNS": "200"}
        done = subprocess.run(
            list(map(str, command)),
            cwd=cwd or self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == code, f"{' '.join(map(str, command))} in {cwd}:\n{said}"
        return said


@pytest.fixture(scope="session")
def workshop(tmp_path_factory):
    """``workshop.run("pytest", cwd=...)``"""
    assert sys.prefix != sys.base_prefix, "run the tests in an environment of their own (`make test`)"
    return Workshop(tmp_path_factory.mktemp("workshop"))
