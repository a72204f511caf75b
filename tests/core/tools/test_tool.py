"""Tools: what the decorator reads off a function, and the message the model gets in every case."""

import asyncio
from typing import Literal

import pytest

from agentr1_core.errors import PluginError
from agentr1_core.tool import BaseTool, ToolBox, ToolContext, ToolError, ToolOutcome, ToolResponse, call_tool, tool


@tool
def weather(city: str, unit: Literal["C", "F"] = "C") -> str:
    """Tell the weather.

    Looks it up in the book.

    Args:
        city: Where.
        unit: Degrees.
    """
    return f"{city}: 20 {unit}"


@tool(name="remember", timeout_s=0.05)
async def slow(seconds: float, ctx: ToolContext) -> ToolResponse:
    """Wait."""
    ctx.state["waited"] = seconds
    await asyncio.sleep(seconds)
    return ToolResponse("done", reward=0.5, done=True)


@tool
def fussy(n: int) -> int:
    """Fail in two ways."""
    if n == 0:
        raise ToolError("zero is not allowed")
    return 1 // (n - 1)


@tool
def long(n: int) -> str:
    """Say much."""
    return "ab" * n


TOOLS = ToolBox([weather, slow, fussy, long]).by_name


def call(run, name, arguments, **options):
    ctx = ToolContext(state={})
    return run(call_tool(TOOLS, name, arguments, ctx, **options)), ctx


def test_decorator_reads_name_description_and_schema():
    assert weather.spec == {
        "name": "weather",
        "description": "Tell the weather.\n\nLooks it up in the book.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Where."},
                "unit": {"type": "string", "enum": ["C", "F"], "default": "C", "description": "Degrees."},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    }
    assert weather("Rome") == "Rome: 20 C"  # still an ordinary function


def test_context_parameter_is_not_shown_to_the_model(run):
    assert list(slow.spec["parameters"]["properties"]) == ["seconds"]
    result, ctx = call(run, "remember", {"seconds": 0})
    assert result.response == ToolResponse("done", reward=0.5, done=True)
    assert ctx.state == {"waited": 0}


@pytest.mark.parametrize(
    ("name", "arguments", "outcome", "text"),
    [
        ("weather", {"city": "Rome"}, ToolOutcome.OK, "Rome: 20 C"),
        (
            "wether",
            {},
            ToolOutcome.UNKNOWN_TOOL,
            "There is no tool named 'wether'. Tools: fussy, long, remember, weather.",
        ),
        (
            "weather",
            {},
            ToolOutcome.BAD_ARGUMENTS,
            "Wrong arguments for 'weather': arguments: 'city' is a required property",
        ),
        (
            "weather",
            {"city": 3},
            ToolOutcome.BAD_ARGUMENTS,
            "Wrong arguments for 'weather': city: 3 is not of type 'string'",
        ),
        ("weather", {"city": "R", "unit": "K"}, ToolOutcome.BAD_ARGUMENTS, "unit: 'K' is not one of ['C', 'F']"),
        ("weather", {"city": "R", "day": 1}, ToolOutcome.BAD_ARGUMENTS, "Additional properties are not allowed"),
        ("fussy", {"n": 0}, ToolOutcome.FAILED, "The tool 'fussy' failed: zero is not allowed"),
        ("fussy", {"n": 1}, ToolOutcome.CRASHED, "The tool 'fussy' failed: ZeroDivisionError"),
        ("remember", {"seconds": 5}, ToolOutcome.TIMED_OUT, "The tool 'remember' did not answer within 0.05 seconds."),
    ],
)
def test_every_outcome_tells_the_model_something(run, name, arguments, outcome, text):
    result, _ = call(run, name, arguments)
    assert result.outcome is outcome
    assert text in result.response.text


def test_blocking_function_meets_the_deadline(run):
    import time

    @tool
    def block() -> str:
        """Block."""
        time.sleep(0.3)
        return "late"

    result = run(call_tool({"block": block}, "block", {}, ToolContext(), timeout_s=0.02))
    assert result.outcome is ToolOutcome.TIMED_OUT


def test_long_result_is_shortened_and_says_so(run):
    result, _ = call(run, "long", {"n": 100}, max_chars=11)
    assert result.shortened
    assert result.response.text == "ababab\n[... 189 characters left out ...]\nbabab"
    untouched, _ = call(run, "long", {"n": 5}, max_chars=10)
    assert not untouched.shortened


def test_unnameable_parameters_are_refused():
    with pytest.raises(PluginError, match=r"parameter '\*numbers: int' cannot be given by name"):

        @tool
        def total(*numbers: int) -> int:
            """Sum."""
            return sum(numbers)


class Opened(BaseTool):
    def __init__(self, name, log, fails=False):
        self.name, self.log, self.fails = name, log, fails

    async def start(self):
        if self.fails:
            raise OSError("no database")
        self.log.append(f"start {self.name}")

    async def close(self):
        self.log.append(f"close {self.name}")

    async def execute(self, args, ctx):
        return "ok"


def test_toolbox_closes_what_it_started_when_a_later_tool_fails(run):
    log = []
    box = ToolBox([Opened("a", log), Opened("b", log, fails=True)])
    with pytest.raises(OSError, match="no database"):
        run(box.start())
    assert log == ["start a", "close a"]


def test_two_tools_of_one_name_are_refused():
    with pytest.raises(PluginError, match="Two tools are named 'weather'"):
        ToolBox([weather, weather])
