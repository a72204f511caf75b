"""A tool-call format for each rule that breaks it, and what the kit says of it."""

import json

import pytest

from agentr1_core.testing.format_kit import ToolFormatKit
from agentr1_core.testing.rules import rules_of
from agentr1_core.tool_format import HermesFormat, ParsedText


class TestHermesKeepsTheContract(ToolFormatKit):
    def make_format(self):
        return HermesFormat()


class Silent(HermesFormat):
    def describe(self, tools):
        return "You have " + " and ".join(tool["name"] for tool in tools)


class LowerCase(HermesFormat):
    def write(self, name, arguments):
        return super().write(name, arguments).lower()


class PlainJson(HermesFormat):
    def write(self, name, arguments):
        return f"{self.OPEN}{json.dumps({'name': name, 'arguments': arguments})}{self.CLOSE}"


class FirstOnly(HermesFormat):
    def parse(self, text):
        found = super().parse(text)
        return ParsedText(found.content, found.calls[:1], found.failures)


class DropsProse(HermesFormat):
    def parse(self, text):
        found = super().parse(text)
        return ParsedText("" if found.calls else found.content, found.calls, found.failures)


class EveryObjectIsACall(HermesFormat):
    def parse(self, text):
        return ParsedText("", (("stop", {}),), ()) if text.strip().startswith("{") else super().parse(text)


class GuessesTheRest(HermesFormat):
    def parse(self, text):
        found = super().parse(text)
        return ParsedText(found.content, found.calls or (("look_up", {}),) * ("look_up" in text), found.failures)


class SaysNothing(HermesFormat):
    def parse(self, text):
        found = super().parse(text)
        return ParsedText(found.content, found.calls, ())


class RaisesOnNonsense(HermesFormat):
    def parse(self, text):
        found = super().parse(text)
        if found.failures:
            json.loads(found.failures[0].raw)
        return found


BROKEN = [
    (Silent, "format/describe", "what 'look_up' does"),
    (LowerCase, "format/round-trip", "wrote"),
    (PlainJson, "format/markers-in-arguments", "the argument"),
    (FirstOnly, "format/several-calls", "of two calls"),
    (DropsProse, "format/several-calls", "prose before a call is lost"),
    (EveryObjectIsACall, "format/prose", "is read as the call"),
    (GuessesTheRest, "format/cut-off", "is read as the call"),
    (SaysNothing, "format/attempts-are-told", "nothing says so"),
    (RaisesOnNonsense, "format/hostile-text", "JSONDecodeError"),
]


@pytest.mark.parametrize(("form", "rule", "why"), BROKEN, ids=[form.__name__ for form, *_ in BROKEN])
def test_a_broken_format_fails_its_rule(told, form, rule, why):
    class Kit(ToolFormatKit):
        def make_format(self):
            return form()

    assert why in told(Kit, rule)


def test_every_rule_of_formats_has_a_broken_one():
    assert {rule for _, rule, _ in BROKEN} == set(rules_of(ToolFormatKit))
