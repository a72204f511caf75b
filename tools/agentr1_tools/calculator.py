"""A calculator that evaluates arithmetic and nothing else.

Expressions are parsed and evaluated by ``simpleeval``; there is no access to Python's names, attributes or
files, and numbers that would take long to compute are refused.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable
from typing import Any

import simpleeval

from agentr1_core.tool import BaseTool, ToolContext, ToolError, ToolResponse

#: Longest integer that is computed, in bits (about 1,200 decimal digits).
MAX_BITS = 4096


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(base, int) and isinstance(exponent, int) and base.bit_length() * exponent > MAX_BITS:
        raise simpleeval.NumberTooHigh("the power is too large")
    return operator.pow(base, exponent)


_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "round": round,
    "min": min,
    "max": max,
    "floor": math.floor,
    "ceil": math.ceil,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log": math.log,
    "log2": math.log2,
    "log10": math.log10,
    "sin": math.sin,
    "cos": math.cos,
    "tan": math.tan,
}
_NAMES = {"pi": math.pi, "e": math.e}


_SYNTAX = (ast.BinOp, ast.UnaryOp, ast.Constant, ast.Name, ast.Call)


class _NumbersOnly(simpleeval.SimpleEval):  # type: ignore[misc]
    """Refuses all other syntax, and text constants before any operator sees them."""

    def __init__(self) -> None:
        super().__init__(operators=_OPERATORS, functions=_FUNCTIONS, names=_NAMES)
        for node in set(self.nodes).difference(_SYNTAX):
            del self.nodes[node]

    @staticmethod
    def _eval_constant(node: ast.Constant) -> int | float:
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            raise simpleeval.FeatureNotAvailable(f"{node.value!r} is not a number")
        return node.value


def calculate(expression: str) -> int | float:
    """The value of an arithmetic expression.

    Raises:
        ToolError: It is not arithmetic, is undefined, or its result is no real number or too large.
    """
    if "^" in expression:
        raise ToolError("Use ** for powers, not ^.")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        value = _NumbersOnly().eval(expression, previously_parsed=tree.body)
    except ZeroDivisionError as error:
        raise ToolError("Division by zero.") from error
    except SyntaxError as error:
        raise ToolError(f"This is not an arithmetic expression: {expression}") from error
    except simpleeval.OperatorNotDefined as error:
        raise ToolError("Only the operators + - * / // % ** are understood.") from error
    except (simpleeval.InvalidExpression, ArithmeticError, ValueError, TypeError, RecursionError) as error:
        raise ToolError(f"Cannot compute this: {error}") from error
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ToolError(f"The result is not a real number: {value}")
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise ToolError("The result is too large.")
    if isinstance(value, float) and not math.isfinite(value):
        raise ToolError("The result is too large.")
    return value


class Calculator(BaseTool):
    """Answers with the value of an arithmetic expression; floats to 12 significant digits."""

    name = "calculator"
    description = (
        "Compute an arithmetic expression. Numbers, + - * / // % **, parentheses, pi, e and the functions "
        f"{', '.join(_FUNCTIONS)} are understood."
    )
    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {
            "expression": {"type": "string", "maxLength": 400, "description": "For example: (3 + 4) * 5"},
        },
        "required": ["expression"],
        "additionalProperties": False,
    }

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResponse:
        value = calculate(args["expression"])
        text = str(value) if isinstance(value, int) else f"{value:.12g}"
        return ToolResponse(text, info={"value": value})
