"""Tools: what the decorator reads off a function, and the message the model gets in every case."""

import asyncio
import enum
import functools
from typing import ClassVar, Literal

import pytest
from pydantic import BaseModel

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


def test_timeout_of_the_tools_own_is_told_as_it_is(run):
    @tool
    def fetch() -> str:
        raise TimeoutError("the server is slow")

    result = run(call_tool({"fetch": fetch}, "fetch", {}, ToolContext()))
    assert result.outcome is ToolOutcome.CRASHED
    assert "TimeoutError: the server is slow" in result.response.text


class Colour(enum.Enum):
    RED = "red"


class Point(BaseModel):
    x: int
    y: int = 0


@tool
def paint(point: Point, colour: Colour = Colour.RED, times: int = 1) -> str:
    return f"{point.x},{point.y} {colour.name}" * times


def test_function_gets_what_its_annotations_say(run):
    arguments = {"point": {"x": 3}, "colour": "red", "times": 2.0}  # JSON knows no difference between 2 and 2.0
    result = run(call_tool({"paint": paint}, "paint", arguments, ToolContext()))
    assert result.response.text == "3,0 RED3,0 RED"
    wrong = run(call_tool({"paint": paint}, "paint", {"point": {"x": "three"}}, ToolContext()))
    assert wrong.outcome is ToolOutcome.BAD_ARGUMENTS


def test_async_function_behind_a_plain_decorator_is_awaited(run):
    async def ask(question: str) -> str:
        return f"{question}!"

    @tool
    @functools.wraps(ask)
    def decorated(*args, **kwargs):
        return ask(*args, **kwargs)

    assert run(call_tool({"ask": decorated}, "ask", {"question": "why"}, ToolContext())).response.text == "why!"


def test_generator_is_no_tool():
    with pytest.raises(PluginError, match="Tool 'count' is a generator"):

        @tool
        def count(n: int):
            yield from range(n)


class Plain(BaseTool):
    name = "plain"
    parameters: ClassVar[dict] = {"type": "object", "properties": {"items": {"type": "array"}}}

    async def execute(self, args, ctx):
        args["items"].append("changed")
        return ToolResponse(len(args["items"]))


def test_tool_works_on_a_copy_and_its_text_is_made_text(run):
    arguments = {"items": ["a"]}
    result = run(call_tool({"plain": Plain()}, "plain", arguments, ToolContext(), max_chars=100))
    assert result.response.text == "2"
    assert arguments == {"items": ["a"]}


def test_schema_that_is_none_is_said_at_the_start(run):
    broken = Plain()
    broken.parameters = {"type": "object", "properties": {"items": {"type": "lst"}}}
    with pytest.raises(PluginError, match=r"Tool 'plain': its `parameters` are no JSON schema: at properties\.items"):
        run(ToolBox([broken]).start())
