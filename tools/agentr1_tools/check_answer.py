"""A tool and a reward that check the final answer of a maths problem.

Numbers are compared as exact decimals; where one side is no plain number, ``math-verify`` judges in a child process
that is killed at its deadline, since computer algebra on hostile input may never end.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from decimal import Decimal, InvalidOperation
from typing import Any

from agentr1_core.errors import ConfigError, DataError, PluginError
from agentr1_core.mdp import Trajectory
from agentr1_core.reward import final_answer
from agentr1_core.task import Task
from agentr1_core.tool import BaseTool, ToolContext, ToolError, ToolResponse
from agentr1_tools.qa import extract, gold_answers

#: Longest answer that is looked at, in characters.
MAX_ANSWER = 400
#: Exponents beyond this are compared by nobody: an exact decimal of a short text could fill the memory.
_NUMBER = re.compile(r"[-+]?(?:\d[\d,]*\.?\d*|\.\d+)")
_CHECKER = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30,) * 2)
from math_verify import parse, verify
for line in sys.stdin:
    gold, said = json.loads(line)
    try:
        right = bool(verify(parse(gold, parsing_timeout=None), parse(said, parsing_timeout=None), timeout_seconds=None))
    except Exception:
        right = False
    print(json.dumps(right), flush=True)
"""


def gsm8k_number(text: str) -> Decimal | None:
    """The answer of a GSM8K solution: the number after ``####``, or else the last number; ``None`` without one."""
    after = text.rpartition("####")[2] if "####" in text else text
    found = _NUMBER.findall(extract(after).replace("$", ""))
    return _decimal(found[0] if "####" in text and found else found[-1]) if found else None


def gsm8k(trajectory: Trajectory) -> float:
    """1 if the final message's number equals the ground truth's; both may be whole GSM8K solutions."""
    said = gsm8k_number(final_answer(trajectory))
    return float(
        any(said is not None and said == gsm8k_number(gold) for gold in gold_answers(trajectory.task, "gsm8k"))
    )


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text.replace(",", "").rstrip("."))
    except InvalidOperation:
        return None


class MathJudge:
    """``math-verify`` in a child process, one question at a time.

    Args:
        deadline_s: Seconds one comparison may take; the process is then killed and the answer counts as wrong.
    """

    #: Seconds the child may take to import its libraries.
    START_S = 60.0

    def __init__(self, deadline_s: float) -> None:
        self.deadline_s = deadline_s
        self._child: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def equal(self, gold: str, said: str) -> bool:
        """Whether both mean the same.

        Raises:
            PluginError: ``math-verify`` does not start, which says nothing about the answer.
        """
        async with self._turn:
            try:
                if self._child is None:
                    await self._start()
                async with asyncio.timeout(self.deadline_s):
                    return await self._ask(gold, said)
            except (TimeoutError, ConnectionError, ValueError):
                await self.close()
                return False
            except BaseException:
                await self.close()
                raise

    async def _start(self) -> None:
        self._child = await asyncio.create_subprocess_exec(
            sys.executable, "-I", "-c", _CHECKER, stdin=-1, stdout=-1, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            async with asyncio.timeout(self.START_S):
                await self._ask("1", "1")
        except (TimeoutError, ConnectionError, ValueError) as error:
            raise PluginError(
                f"math-verify did not start within {self.START_S:g} s in its own process ({type(error).__name__}).",
                f"See why: {sys.executable} -I -c 'import math_verify'.",
            ) from error

    async def _ask(self, gold: str, said: str) -> bool:
        child = self._child
        if child is None or child.stdin is None or child.stdout is None:
            raise ConnectionError("the judge is not running")
        child.stdin.write(json.dumps([gold, said]).encode() + b"\n")
        await child.stdin.drain()
        return bool(json.loads(await child.stdout.readline()))

    async def close(self) -> None:
        """Kill the child."""
        child, self._child = self._child, None
        if child is not None and child.returncode is None:
            child.kill()
            await child.wait()


class CheckAnswer(BaseTool):
    """Tells the agent whether its answer to a maths problem is right; the truth itself is never shown.

    The ground truth is ``tools_kwargs["check_answer"]["ground_truth"]`` of the row (under the name the tool has), or
    the row's own.

    Args:
        reward: Reward of a right answer; none when unset, and then another reward should judge the episode.
        ends: Whether the episode ends with the first answer.
        deadline_s: Seconds one comparison may take; past it the answer counts as wrong.
        tool_name: What the model calls it.
    """

    parameters = {  # noqa: RUF012
        "type": "object",
        "properties": {
            "answer": {"type": "string", "maxLength": MAX_ANSWER, "description": "The final answer, without a unit."}
        },
        "required": ["answer"],
        "additionalProperties": False,
    }

    def __init__(
        self,
        *,
        reward: float | None = None,
        ends: bool = False,
        deadline_s: float = 5.0,
        tool_name: str = "check_answer",
    ) -> None:
        if not deadline_s > 0:
            raise ConfigError(f"`deadline_s` of the answer checker is {deadline_s}.", "Give a positive number.")
        self.name = tool_name
        self.description = "Check your final answer to the problem."
        self.reward = reward
        self.ends = ends
        self._judge = MathJudge(deadline_s)

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> ToolResponse:
        right = await self._is_right(args["answer"], self._truths(ctx))
        reward = None if self.reward is None else self.reward * right
        return ToolResponse("Right." if right else "Wrong.", reward, done=self.ends, info={"right": right})

    def _truths(self, ctx: ToolContext) -> list[str]:
        given = ctx.kwargs.get("ground_truth")
        if given is not None:
            return [str(given)]
        truth = Task(ctx.task).ground_truth
        if truth is None:
            raise DataError(
                f"The tool '{self.name}' needs a ground truth, but the row has none.",
                f"Give rows `tools_kwargs: {{{self.name}: {{ground_truth: ...}}}}` or `reward_model`.",
            )
        return gold_answers(ctx.task, self.name)

    async def _is_right(self, said: str, truths: list[str]) -> bool:
        if not said.strip():
            raise ToolError("The answer is empty.")
        for truth in truths:
            gold = truth.rpartition("####")[2].strip() if "####" in truth else truth.strip()
            number, mine = _plain(gold), _plain(said)
            if number is not None and mine is not None:
                if number == mine:
                    return True
            elif await self._judge.equal(gold, said):
                return True
        return False

    async def close(self) -> None:
        await self._judge.close()


def _plain(text: str) -> Decimal | None:
    """A text that is one number and nothing else."""
    text = text.strip().replace("$", "").removeprefix("####").strip()
    return _decimal(text) if _NUMBER.fullmatch(text) else None
