"""The page "Publish a tool in ten minutes", followed to the letter."""

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "publish.md"


def test_the_page_works_as_it_is_written(workshop):
    home = workshop.folder / "publish"
    home.mkdir()
    folder, said = home, {}
    for language, block in re.findall(r"^```(\w+)[^\n]*\n(.*?)^```$", PAGE.read_text(), flags=re.M | re.S):
        named = re.match(r"# (\S+\.\w+)\n", block)
        if named:
            (folder / named[1]).write_text(block.partition("\n")[2])
        elif language == "bash":
            for command in block.splitlines():
                command = command.partition("#")[0].strip()
                if command.startswith("cd "):
                    folder = folder / command.removeprefix("cd ")
                    continue
                # Nothing may be fetched here, so the build uses what is installed.
                run = command.replace("python -m build", "python -m build --no-isolation --wheel")
                said[command] = workshop.run("bash", "-euo", "pipefail", "-c", run, cwd=folder)

    assert "acme-weather" in said["agentr1 plugins"]
    assert "tool: acme_weather" in said["agentr1 plugins"]
    assert "passed" in said["pytest"]
    assert "passed" in said["pytest --agentr1 tool:acme_weather"]
    assert "acme_weather" in said["agentr1 config run.yaml"]
    assert [wheel.name for wheel in (folder / "dist").glob("*.whl")] == ["acme_weather-0.1.0-py3-none-any.whl"]
