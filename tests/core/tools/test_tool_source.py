"""A tool source: tools that are known only once something was opened and asked."""

import pytest

from agentr1_core import BaseTool, ToolSource, tool
from agentr1_core.config.schema import RunConfig
from agentr1_core.errors import PluginError
from agentr1_core.job.play import build_tools
from agentr1_core.plugins import PluginManager
from agentr1_core.tool import ToolBox

EVENTS = []


class Pinger(BaseTool):
    description = "Ping."

    def __init__(self, name):
        self.name = name

    async def start(self):
        EVENTS.append(f"start {self.name}")
        if self.name == "broken":
            raise OSError("cannot start")

    async def execute(self, args, ctx):
        return "pong"

    async def close(self):
        EVENTS.append(f"close {self.name}")


class Server(ToolSource):
    """Offers the tools it is told to."""

    def __init__(self, names=("ping",)):
        self.names = names

    async def start(self):
        EVENTS.append("open source")
        return [Pinger(name) for name in self.names]

    async def close(self):
        EVENTS.append("close source")


@pytest.fixture(autouse=True)
def no_events():
    EVENTS.clear()


@tool
def own() -> str:
    """Something of one's own."""
    return "own"


def test_its_tools_join_the_box_and_are_closed_before_it(run):
    async def use():
        box = ToolBox([Server(["a", "b"]), own])
        assert list(box.by_name) == ["own"]
        await box.start()
        assert sorted(box.by_name) == ["a", "b", "own"]
        await box.close()

    run(use())
    assert EVENTS == ["open source", "start a", "start b", "close a", "close b", "close source"]


def test_when_one_of_its_tools_does_not_start_everything_is_closed_again(run):
    with pytest.raises(OSError, match="cannot start"):
        run(ToolBox([Server(["a", "broken"])]).start())
    assert EVENTS == ["open source", "start a", "start broken", "close a", "close source"]


def test_two_tools_of_one_name_are_an_error_that_leaves_nothing_open(run):
    with pytest.raises(PluginError, match="Two tools are named 'own'"):
        run(ToolBox([Server(["own"]), own]).start())
    assert EVENTS == ["open source", "close source"]


def test_a_run_file_names_it_like_a_tool(run):
    name = f"{__name__}:Server"
    config = RunConfig(tools=[{"name": name, "names": ["x"]}])
    box = build_tools(config, Manager())
    run(box.start())
    assert list(box.by_name) == ["x"]
    run(box.close())


class Manager(PluginManager):
    """Knows this module's source, which a run file would name by package."""

    def __init__(self):
        pass

    def get(self, kind, name):
        return Server
