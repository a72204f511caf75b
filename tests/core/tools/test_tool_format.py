"""The Hermes format: every way a call can be right or wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentr1_core.mdp import ParseStatus
from agentr1_core.tool_format import HermesFormat

HERMES = HermesFormat()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.text(min_size=1, max_size=8), st.dictionaries(st.text(max_size=5), JSON, max_size=3))))
def test_what_is_written_parses_back(calls):
    text = "".join(HERMES.write(name, arguments) for name, arguments in calls)
    if any(tag in text.replace(HERMES.OPEN + "\n", "").replace("\n" + HERMES.CLOSE, "") for tag in ("tool_call>",)):
        return
    parsed = HERMES.parse(text)
    assert list(parsed.calls) == calls
    assert parsed.failures == ()


def test_prose_around_calls_is_kept():
    parsed = HERMES.parse(
        'Let me see. <tool_call>{"name": "f"}</tool_call> And <tool_call>{"name": "g"}</tool_call> done'
    )
    assert [name for name, _ in parsed.calls] == ["f", "g"]
    assert parsed.content == "Let me see.  And  done"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('<tool_call>{"name": "f", "arguments": {}', ParseStatus.UNCLOSED_BLOCK),
        ('<tool_call>{"name": "f", "arguments": {}</tool_call>', ParseStatus.INVALID_JSON),
        ('<tool_call>{"arguments": {}}</tool_call>', ParseStatus.MISSING_NAME),
        ('<tool_call>{"name": 3}</tool_call>', ParseStatus.MISSING_NAME),
        ("<tool_call>[]</tool_call>", ParseStatus.MALFORMED_STRUCTURE),
        ('<tool_call>{"name": "f", "arguments": [1]}</tool_call>', ParseStatus.MALFORMED_STRUCTURE),
        ('<tool_call>{"name": "f", "arguments": "{"}</tool_call>', ParseStatus.INVALID_JSON),
        ('{"name": "f", "arguments": {}}</tool_call>', ParseStatus.MALFORMED_STRUCTURE),
        (f"<tool_call>{'[' * 100_000}</tool_call>", ParseStatus.INVALID_JSON),  # deeper than Python parses
        (f'<tool_call>{{"name": {"1" * 5000}}}</tool_call>', ParseStatus.INVALID_JSON),  # longer than it reads
    ],
)
def test_broken_calls_are_typed_failures(text, status):
    parsed = HERMES.parse(text)
    assert parsed.calls == ()
    (failure,) = parsed.failures
    assert failure.status is status
    assert failure.raw
    assert failure.explain()


def test_good_and_broken_calls_side_by_side():
    parsed = HERMES.parse(
        '<tool_call>{"name": "f"}</tool_call><tool_call>{</tool_call><tool_call>{"name": "g"}</tool_call>'
    )
    assert [name for name, _ in parsed.calls] == ["f", "g"]
    assert [failure.status for failure in parsed.failures] == [ParseStatus.INVALID_JSON]
