"""The calculator: exact on arithmetic, a clear message for everything else."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentr1_core.tool import ToolContext, ToolError, ToolOutcome, call_tool
from agentr1_tools.calculator import Calculator, calculate


def call(arguments: dict[str, Any]) -> Any:
    return asyncio.run(call_tool({"calculator": Calculator()}, "calculator", arguments, ToolContext()))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("(3 + 4) * 5", "35"),
        ("2 ** 100", str(2**100)),
        ("7 / 2", "3.5"),
        ("-7 // 2", "-4"),
        ("0.1 + 0.2", "0.3"),
        ("10 % 4", "2"),
        ("sqrt(2) ** 2", "2"),
        ("max(1, 2, 3) - round(2.4)", "1"),
        ("2 * pi", "6.28318530718"),
    ],
)
def test_arithmetic(expression: str, text: str) -> None:
    result = call({"expression": expression})

    assert (result.outcome, result.response.text) == (ToolOutcome.OK, text)


@given(st.integers(), st.integers(), st.integers(min_value=1, max_value=1000))
def test_integers_are_exact(a: int, b: int, c: int) -> None:
    assert calculate(f"({a} + {b}) * {c} - {a} // {c}") == (a + b) * c - a // c


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("1 / 0", "Division by zero"),
        ("2 ^ 3", "Use ** for powers"),
        ("three plus four", "not an arithmetic expression"),
        ("9 ** 9 ** 9", "too large"),
        ("(10.0 ** 300) * (10.0 ** 300)", "too large"),
        ("sqrt(-1)", "Cannot compute"),
        ("(-8) ** 0.5", "not a real number"),
        ("open('secrets')", "Cannot compute"),
        ("'ab' * 1000", "is not a number"),
        ("(1).__class__", "Cannot compute"),
        ("x + 1", "'x' is not defined"),
        ("", "not an arithmetic expression"),
        ("(1 + 2", "not an arithmetic expression"),
        ("1 << 5", "Only the operators"),
        ("1 < 2", "Cannot compute"),
        ("not 1", "Only the operators"),
        ("~1", "Only the operators"),
        ("[1, 2]", "Cannot compute"),
        ("x := 3", "not an arithmetic expression"),
        ("3; 4", "not an arithmetic expression"),
    ],
)
def test_whatever_is_not_arithmetic_is_explained_to_the_model(expression: str, says: str) -> None:
    result = call({"expression": expression})

    assert result.outcome is ToolOutcome.FAILED
    assert says in result.response.text


@pytest.mark.parametrize(
    "arguments", [{}, {"expression": 5}, {"expression": "1", "digits": 3}, {"expression": "1" * 401}]
)
def test_arguments_follow_the_schema(arguments: dict[str, Any]) -> None:
    assert call(arguments).outcome is ToolOutcome.BAD_ARGUMENTS


@given(st.text(alphabet="0123456789+-*/().eE ,'<=[]", max_size=40))
def test_any_text_gives_a_finite_number_or_a_tool_error(expression: str) -> None:
    try:
        value = calculate(expression)
    except ToolError:
        return
    assert math.isfinite(value)
