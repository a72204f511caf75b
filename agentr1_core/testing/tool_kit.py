"""What every tool must do. Subclass ``ToolKit``, say how to make the tool and give calls with good arguments.

The checks call the tool as environments do. They never reach into it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import jsonschema
import pytest

from agentr1_core.testing.rules import rule
from agentr1_core.tool import (
    BaseTool,
    ToolBox,
    ToolContext,
    ToolError,
    ToolOutcome,
    ToolResponse,
    ToolResult,
    call_tool,
)

T = TypeVar("T")
DEADLINE_S = 60.0
#: Seconds a call may go on after it was told to end.
GRACE_S = 5.0
SIMPLE_TYPES = {"string", "integer", "number", "boolean", "array", "object"}


class ToolKit:
    """Checks of the ``BaseTool`` contract. Override ``make_tool`` and ``good_calls``."""

    #: Whether the same call in a new episode gives the same answer; set it to False for tools that draw or tell time.
    deterministic = True
    #: Longest answer to a good call, in characters; longer ones are cut by environments, so a tool should not rely on
    #: them.
    max_result_chars = 20_000

    #: Whether the good calls are known to work; calls guessed from a schema may be answered by a ToolError.
    calls_are_known = True

    def make_tool(self) -> BaseTool:
        """The tool, not started."""
        raise NotImplementedError("Override make_tool() in your test class.")

    def good_calls(self) -> Sequence[dict[str, Any]]:
        """Arguments that must work."""
        raise NotImplementedError("Override good_calls() in your test class.")

    def context(self) -> ToolContext:
        """What the tool may know of a new episode; a tool that reads the data row needs one here."""
        return ToolContext()

    def slow_call(self) -> dict[str, Any]:
        """Arguments of the call that takes longest; it is cancelled and timed out."""
        return self.good_calls()[0]

    @rule("tool/schema")
    def test_it_describes_itself(self) -> None:
        spec = self.make_tool().spec
        assert spec["name"].isidentifier(), f"models call tools by identifiers, and {spec['name']!r} is none"
        assert spec["description"].strip(), "a model cannot use a tool that it is told nothing about"
        jsonschema.Draft202012Validator.check_schema(spec["parameters"])
        assert spec["parameters"].get("type") == "object", "arguments are passed by name: the schema's type is object"
        json.dumps(spec)

    @rule("tool/good-calls")
    def test_good_calls_work(self) -> None:
        calls = self.good_calls()
        assert calls, "give at least one good call"
        for arguments, result in zip(calls, self._call(*calls), strict=True):
            assert self._works(result), f"{arguments}: {result.response.text}"

    @rule("tool/bad-arguments")
    def test_bad_arguments_are_refused(self) -> None:
        good = self.good_calls()[0]
        parameters = self.make_tool().parameters
        properties = parameters.get("properties", {})
        required = list(parameters.get("required", ()))
        unlisted = sorted(set(required).difference(properties))
        assert not unlisted, f"the schema requires {unlisted} and does not describe them"
        undeclared = sorted(set(good).difference(properties))
        free = bool(parameters.get("additionalProperties"))
        assert free or not undeclared, f"the schema does not describe the arguments {undeclared}"
        bad = [{key: value for key, value in good.items() if key != name} for name in required]
        bad += [
            {**good, name: _of_another_type(schema["type"])}
            for name, schema in properties.items()
            if schema.get("type") in SIMPLE_TYPES
        ]
        if parameters.get("additionalProperties") is False:
            bad.append({**good, "no_such_argument": 1})
        for arguments, result in zip(bad, self._call(*bad), strict=True):
            assert result.outcome is ToolOutcome.BAD_ARGUMENTS, f"{arguments} was answered with {result}"

    @rule("tool/no-crash")
    def test_arguments_that_fit_the_schema_never_crash_it(self) -> None:
        good = self.good_calls()[0]
        properties = self.make_tool().parameters.get("properties", {})
        odd = [
            {**good, name: value} for name, schema in properties.items() for value in _ODD.get(schema.get("type"), ())
        ]
        for arguments, result in zip(odd, self._call(*odd), strict=True):
            assert result.outcome is not ToolOutcome.CRASHED, (
                f"{arguments}: {result.response.text} Raise ToolError to tell the model what is wrong."
            )

    @rule("tool/concurrency")
    def test_calls_at_once_do_not_disturb_each_other(self) -> None:
        calls = self.good_calls()
        alone = [self._call(arguments)[0] for arguments in calls]
        together = self._call(*[arguments for arguments in calls for _ in range(8)])
        for number, result in enumerate(together):
            expected = alone[number // 8]
            assert result.outcome is expected.outcome, f"{calls[number // 8]} among others: {result.response.text}"
            if self.deterministic:
                assert result.response.text == expected.response.text, f"{calls[number // 8]} answers otherwise"

    @rule("tool/cancellation")
    def test_a_cancelled_call_ends_and_leaves_the_tool_usable(self) -> None:
        async def cancel_then_call(tool: BaseTool) -> ToolResult:
            call = asyncio.create_task(_execute(tool, self.slow_call(), self.context()))
            for _ in range(3):
                await asyncio.sleep(0)
            cancelled = call.cancel()
            _, running = await asyncio.wait({call}, timeout=GRACE_S)
            assert not running, f"a cancelled call still runs after {GRACE_S:g} seconds"
            assert not cancelled or call.cancelled() or call.exception() is not None, "it swallows the cancellation"
            async with _episode(self.context()) as ctx:
                return await self._one(tool, self.good_calls()[0], ctx)

        result = self._with_tool(cancel_then_call)
        assert self._works(result), f"after a cancelled call: {result.response.text}"

    @rule("tool/time-out")
    def test_a_call_ends_at_its_deadline(self) -> None:
        async def time_out_then_call(tool: BaseTool) -> ToolResult:
            loop = asyncio.get_running_loop()
            start = loop.time()
            call = asyncio.create_task(asyncio.wait_for(_execute(tool, self.slow_call(), self.context()), 0.01))
            _, running = await asyncio.wait({call}, timeout=GRACE_S)
            assert not running, f"a call still runs {GRACE_S:g} seconds after its deadline"
            assert loop.time() - start < GRACE_S, "it blocks the event loop: await, or run it in a thread"
            call.exception()  # whether it was in time is the tool's to say
            async with _episode(self.context()) as ctx:
                return await self._one(tool, self.good_calls()[0], ctx)

        result = self._with_tool(time_out_then_call)
        assert self._works(result), f"after a timed-out call: {result.response.text}"

    @rule("tool/result-limits")
    def test_answers_are_text_of_a_sensible_length(self) -> None:
        for arguments, result in zip(self.good_calls(), self._call(*self.good_calls()), strict=True):
            text = result.response.text
            assert isinstance(text, str), f"{arguments} is answered with {type(text).__name__}"
            text.encode("utf-8")  # a lone surrogate would break the tokenizer
            assert len(text) <= self.max_result_chars, (
                f"{arguments}: {len(text)} characters, at most {self.max_result_chars}"
            )

    @rule("tool/no-leaks")
    def test_nothing_leaks_from_one_episode_to_the_next(self) -> None:
        if not self.deterministic:
            pytest.skip("the tool's answers differ from call to call")

        async def two_episodes(tool: BaseTool) -> tuple[list[str], list[str]]:
            return await self._episode(tool), await self._episode(tool)

        first, second = self._with_tool(two_episodes)
        assert first == second, "the same calls are answered otherwise in the next episode: keep state in ctx.state"

    @rule("tool/close")
    def test_closing_twice_or_without_starting_is_harmless(self) -> None:
        async def close() -> None:
            tool = self.make_tool()
            await tool.close()
            await tool.close()

        asyncio.run(close())

    def _works(self, result: ToolResult) -> bool:
        return result.outcome is ToolOutcome.OK or (not self.calls_are_known and result.outcome is ToolOutcome.FAILED)

    async def _episode(self, tool: BaseTool) -> list[str]:
        """The answers to all good calls of one episode, one after the other."""
        async with _episode(self.context()) as ctx:
            return [(await self._one(tool, arguments, ctx)).response.text for arguments in self.good_calls()]

    async def _one(self, tool: BaseTool, arguments: dict[str, Any], ctx: ToolContext) -> ToolResult:
        return await call_tool({tool.name: tool}, tool.name, arguments, ctx, timeout_s=DEADLINE_S)

    def _call(self, *calls: dict[str, Any]) -> list[ToolResult]:
        """The results of calls that run together, each in an episode of its own."""

        async def all_of_them(tool: BaseTool) -> list[ToolResult]:
            async def alone(arguments: dict[str, Any]) -> ToolResult:
                async with _episode(self.context()) as ctx:
                    return await self._one(tool, arguments, ctx)

            return await asyncio.gather(*(alone(arguments) for arguments in calls))

        return self._with_tool(all_of_them)

    def _with_tool(self, work: Callable[[BaseTool], Awaitable[T]]) -> T:
        async def opened() -> T:
            tool = self.make_tool()
            box = ToolBox([tool])
            await box.start()
            try:
                async with asyncio.timeout(DEADLINE_S):
                    return await work(tool)
            finally:
                await box.close()

        return asyncio.run(opened())


async def _execute(tool: BaseTool, arguments: dict[str, Any], context: ToolContext) -> ToolResponse | str | None:
    """The bare call, in which a failure that the tool tells the model about is an answer too."""
    async with _episode(context) as ctx:
        try:
            return await tool.execute(dict(arguments), ctx)
        except ToolError:
            return None


@asynccontextmanager
async def _episode(ctx: ToolContext) -> AsyncIterator[ToolContext]:
    """One episode; what tools hold for it is closed at its end."""
    try:
        yield ctx
    finally:
        cleanup = getattr(ctx, "cleanup", None)
        if cleanup is not None:
            await cleanup.aclose()


def _of_another_type(kind: str) -> Any:
    return "text" if kind in ("array", "object", "integer", "number", "boolean") else {"nested": []}


#: Values that fit a type and that a model may well send.
_ODD: dict[Any, tuple[Any, ...]] = {
    "string": ("", " ", "\u0000", "'); --", "\U0001f600" * 40, "9" * 300),
    "integer": (0, -1, 2**70),
    "number": (0, -1.5, 1e300),
}
