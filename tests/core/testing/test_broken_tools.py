"""A tool for each rule that breaks it, and what the kit says of it."""

import asyncio
import time

import pytest

from agentr1_core.testing import tool_kit
from agentr1_core.testing.rules import rules_of
from agentr1_core.testing.tool_kit import ToolKit
from agentr1_core.tool import BaseTool

TEXT = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
NO_TYPE = {"type": "object", "properties": {"text": {"type": "words"}}}
NOTHING = {"type": "object", "properties": {}}


class Echo(BaseTool):
    """Keeps the contract; the broken tools below change one thing each."""

    name = "echo"
    description = "Say it again."
    parameters = TEXT

    async def execute(self, args, ctx):
        return args["text"]


class NoDescription(Echo):
    description = ""


class NameWithSpaces(Echo):
    name = "say it again"


class BrokenSchema(Echo):
    parameters = NO_TYPE


class Refuses(Echo):
    async def execute(self, args, ctx):
        raise RuntimeError("not today")


class DescribesNothing(Echo):
    parameters = NOTHING


class CrashesOnOddText(Echo):
    async def execute(self, args, ctx):
        return args["text"][0]


class OneAtATime(Echo):
    busy = False

    async def execute(self, args, ctx):
        if self.busy:
            raise RuntimeError("busy")
        self.busy = True
        await asyncio.sleep(0.001)
        self.busy = False
        return args["text"]


class MixesUpCallers(Echo):
    async def execute(self, args, ctx):
        self.last = args["text"]
        await asyncio.sleep(0.001)
        return self.last


class SwallowsCancellation(Echo):
    async def execute(self, args, ctx):
        try:
            await asyncio.sleep(0.1)
        except asyncio.CancelledError:
            return "still here"
        return args["text"]


class KeepsItsLock(Echo):
    async def execute(self, args, ctx):
        if getattr(self, "locked", False):
            raise RuntimeError("locked for ever")
        self.locked = True
        await asyncio.sleep(0.05)
        self.locked = False
        return args["text"]


class BlocksTheLoop(Echo):
    async def execute(self, args, ctx):
        await asyncio.sleep(0)
        time.sleep(0.4)  # noqa: ASYNC251  # what it is there for
        return args["text"]


class IgnoresItsDeadline(Echo):
    async def execute(self, args, ctx):
        for _ in range(4):
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue
        return args["text"]


class AnswersAtLength(Echo):
    async def execute(self, args, ctx):
        return args["text"] * 50_000


class AnswersWithHalfACharacter(Echo):
    async def execute(self, args, ctx):
        return "\ud83d"


class Counts(Echo):
    calls = 0

    async def execute(self, args, ctx):
        self.calls += 1
        return f"{args['text']}, call {self.calls}"


class ClosesOnce(Echo):
    connection = None

    async def close(self):
        self.connection.close()


BROKEN = [
    (NoDescription, "tool/schema", "told nothing about"),
    (NameWithSpaces, "tool/schema", "identifiers"),
    (BrokenSchema, "tool/schema", "words"),
    (Refuses, "tool/good-calls", "not today"),
    (DescribesNothing, "tool/bad-arguments", "does not describe"),
    (CrashesOnOddText, "tool/no-crash", "IndexError"),
    (OneAtATime, "tool/concurrency", "busy"),
    (MixesUpCallers, "tool/concurrency", "answers otherwise"),
    (SwallowsCancellation, "tool/cancellation", "swallows the cancellation"),
    (KeepsItsLock, "tool/cancellation", "locked for ever"),
    (BlocksTheLoop, "tool/time-out", "blocks the event loop"),
    (IgnoresItsDeadline, "tool/time-out", "after its deadline"),
    (AnswersAtLength, "tool/result-limits", "characters, at most"),
    (AnswersWithHalfACharacter, "tool/result-limits", "surrogates not allowed"),
    (Counts, "tool/no-leaks", "keep state in ctx.state"),
    (ClosesOnce, "tool/close", "NoneType"),
]


def kit_of(tool):
    class Kit(ToolKit):
        def make_tool(self):
            return tool()

        def good_calls(self):
            return [{"text": "hi"}, {"text": "there"}]

    return Kit


class TestEchoKeepsTheContract(kit_of(Echo)):
    pass


@pytest.mark.parametrize(("tool", "rule", "why"), BROKEN, ids=[tool.__name__ for tool, *_ in BROKEN])
def test_a_broken_tool_fails_its_rule(told, monkeypatch, tool, rule, why):
    monkeypatch.setattr(tool_kit, "GRACE_S", 0.3)
    assert why in told(kit_of(tool), rule)


def test_every_rule_of_tools_has_a_broken_one():
    assert {rule for _, rule, _ in BROKEN} == set(rules_of(ToolKit))
