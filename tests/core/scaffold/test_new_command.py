"""What ``agentr1 new`` refuses, and what follows from a name."""

import sys
import tomllib

import pytest

from agentr1_core.cli.main import main
from agentr1_core.errors import ConfigError
from agentr1_core.plugins import PluginManager
from agentr1_core.scaffold import KINDS, new_project
from agentr1_core.scaffold.names import Names, names_for


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("acme-weather", Names("acme-weather", "acme_weather", "AcmeWeather")),
        ("Acme_Weather2", Names("acme-weather2", "acme_weather2", "AcmeWeather2")),
        ("acme.weather", Names("acme-weather", "acme_weather", "AcmeWeather")),
    ],
)
def test_one_name_gives_the_others(name, names):
    assert names_for(name) == names


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "no name of a package"),
        ("2fast", "no name of a package"),
        ("a b", "no name of a package"),
        ("-x", "no name of a package"),
        ("a--b", "no name of a package"),
        ("../evil", "no name of a package"),
        ("class", "word of Python"),
        ("json", "hide a module of Python"),
        ("numpy", "installed already"),
    ],
)
def test_names_that_get_in_the_way_are_refused(tmp_path, name, why):
    with pytest.raises(ConfigError, match=why):
        new_project("tool", name, tmp_path / "new")
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="something in"):
        new_project("tool", "acme-weather", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_can_be_chosen(tmp_path):
    assert new_project("env", "acme-maze", tmp_path / "a" / "b") == tmp_path / "a" / "b"
    project = tomllib.loads((tmp_path / "a/b/pyproject.toml").read_text())["project"]
    assert project["name"] == "acme-maze"
    assert project["entry-points"]["agentr1"] == {"acme_maze": "acme_maze.plugin"}


def test_the_command_says_what_is_wrong(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])  # the command adds this folder
    plugins = PluginManager.discover()
    assert main(["new", "robot", "acme-arm"], plugins) == 1
    assert f"Say one of: {', '.join(KINDS)}." in capsys.readouterr().err
    assert main(["new", "estimator", "grpo"], plugins) == 1
    assert "on offer already" in capsys.readouterr().err
    assert main(["new", "tool", "acme-weather"], plugins) == 0
    assert "cd acme-weather" in capsys.readouterr().out
    assert main(["new", "tool", "acme-weather"], plugins) == 1
    assert "nothing was changed" in capsys.readouterr().err
