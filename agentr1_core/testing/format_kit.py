"""What every tool-call format must do. Subclass ``ToolFormatKit`` and say how to make the format.

Models write anything, so most checks are drawn by hypothesis: calls with any arguments, and texts made of scraps of
calls.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_core.mdp import ParseFailure, ToolSpec
from agentr1_core.testing.rules import rule
from agentr1_core.tool_format import ParsedText, ToolFormat

_law = settings(max_examples=100, deadline=None, database=None, derandomize=True)
_NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,12}", fullmatch=True)
_LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6
)
ARGUMENTS = st.dictionaries(st.text(max_size=12), _VALUES, max_size=4)

SPECS: tuple[ToolSpec, ...] = (
    {
        "name": "look_up",
        "description": "Look a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
    },
    {"name": "stop", "description": "End the episode.", "parameters": {"type": "object", "properties": {}}},
)


class ToolFormatKit:
    """Checks of the ``ToolFormat`` contract. Override ``make_format``."""

    def make_format(self) -> ToolFormat:
        """The format."""
        raise NotImplementedError("Override make_format() in your test class.")

    @rule("format/describe")
    def test_it_tells_the_model_its_tools(self) -> None:
        text = self.make_format().describe(SPECS)
        for spec in SPECS:
            assert spec["name"] in text, f"the tool '{spec['name']}' is not in the description"
            assert spec["description"] in text, f"what '{spec['name']}' does is not in the description"
        assert "word" in text, "the arguments of a tool are not in the description"

    @rule("format/round-trip")
    def test_what_it_writes_it_reads(self) -> None:
        form = self.make_format()

        @_law
        @given(name=_NAMES, arguments=ARGUMENTS)
        def law(name: str, arguments: dict[str, Any]) -> None:
            found = form.parse(form.write(name, arguments))
            assert found.calls == ((name, arguments),), f"wrote {(name, arguments)}, read {found.calls}"
            assert not found.failures, f"a call of its own does not parse: {found.failures}"
            assert not found.content.strip(), f"a call leaves the prose {found.content!r}"

        law()

    @rule("format/markers-in-arguments")
    def test_arguments_may_hold_the_markers_themselves(self) -> None:
        form = self.make_format()
        inner = form.write("stop", {})
        for text in (inner, inner[: len(inner) // 2], inner[len(inner) // 2 :]):
            found = form.parse(form.write("look_up", {"word": text}))
            assert found.calls == (("look_up", {"word": text}),), f"the argument {text!r} is read as {found.calls}"

    @rule("format/several-calls")
    def test_all_calls_are_found_in_order_and_prose_is_kept(self) -> None:
        form = self.make_format()
        one, two = form.write("look_up", {"word": "ä\n"}), form.write("stop", {})
        found = form.parse(f"First this.\n{one}\n{two}")
        assert found.calls == (("look_up", {"word": "ä\n"}), ("stop", {})), f"of two calls it read {found.calls}"
        assert "First this." in found.content, f"the prose before a call is lost: {found.content!r}"

    @rule("format/prose")
    def test_prose_is_no_call(self) -> None:
        for text in ("", "I do not know.", "{}", 'The answer is {"x": 1}.', "def stop(): pass"):
            found = self.make_format().parse(text)
            assert not found.calls, f"{text!r} is read as the call {found.calls}"
            assert not found.failures, f"{text!r} is read as a failed call"
            assert found.content.strip() == text.strip(), f"{text!r} is read as the prose {found.content!r}"

    @rule("format/cut-off")
    def test_a_call_cut_off_is_never_another_call(self) -> None:
        form = self.make_format()
        call = ("look_up", {"word": "7", "n": 123, "more": [1, {"a": 2}]})
        written = form.write(*call)
        for end in range(len(written)):
            for other in form.parse(written[:end]).calls:
                assert other == call, f"{written[:end]!r} is read as the call {other}"

    @rule("format/attempts-are-told")
    def test_a_call_that_does_not_parse_is_reported(self) -> None:
        form = self.make_format()
        written = form.write("look_up", {"word": "seven"})
        found = form.parse(written[: written.index("seven")])
        assert found.failures, f"{written[: written.index('seven')]!r} is a call that was begun, and nothing says so"

    @rule("format/hostile-text")
    def test_no_text_breaks_it(self) -> None:
        form = self.make_format()
        written = form.write("look_up", {"word": "x"})
        scraps = [written[: len(written) // 2], written[len(written) // 2 :], written, *written.split(), "{", "}", '"']
        scraps += ["null", "[]", "NaN", "\u0000", "\ud7ff", "\U0001f600", "\\", "\\ud800", "[" * 5000, "9" * 5000]

        @_law
        @given(parts=st.lists(st.sampled_from(scraps) | st.text(max_size=8), max_size=8))
        def law(parts: list[str]) -> None:
            text = "".join(parts)
            _check_parsed(form.parse(text), text)

        law()


def _check_parsed(found: ParsedText, text: str) -> None:
    assert isinstance(found.content, str), f"{text!r}: the prose is {found.content!r}"
    for name, arguments in found.calls:
        assert isinstance(name, str), f"{text!r}: a call without a name of text: {name!r}"
        assert name, f"{text!r}: a call without a name"
        assert isinstance(arguments, dict), f"{text!r}: arguments that are no object: {arguments!r}"
    for failure in found.failures:
        assert isinstance(failure, ParseFailure), f"{text!r}: {failure!r} is no ParseFailure"
        assert failure.raw in text, f"{text!r}: a failure quotes {failure.raw!r}, which was never said"
