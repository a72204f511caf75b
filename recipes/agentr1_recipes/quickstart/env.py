"""The adding task: three numbers, one addition a turn, the context rewritten every turn.

The model sees only the present state (``have 7 todo 3 5``) and acts through two tools, ``add`` and ``answer``. A
wrong or broken call costs a turn; only the right final answer is rewarded.
"""

from __future__ import annotations

from agentr1_core.env import AgentEnv, StepResult
from agentr1_core.mdp import Action, Message, Observation
from agentr1_core.task import Task
from agentr1_core.tool import ToolBox, ToolContext, ToolOutcome, ToolResponse, call_tool, tool


@tool
def add(a: int, b: int) -> int:
    """Add the next number to the one you have.

    Args:
        a: The number you have.
        b: The next number to do.
    """
    return a + b


@tool
def answer(value: int, ctx: ToolContext) -> ToolResponse:
    """Give the sum of all numbers once nothing is left to do.

    Args:
        value: The sum.
    """
    right = value == ctx.state["sum"]
    return ToolResponse("right" if right else "wrong", reward=float(right), done=True)


TOOLS = ToolBox([add, answer])
SPECS = tuple(item.spec for item in TOOLS.by_name.values())
SYSTEM: Message = {"role": "system", "content": "Add the numbers, one call a turn."}


def show(have: int, todo: list[int]) -> tuple[Message, ...]:
    """All that the model sees in a state: the history is not part of it."""
    left = " ".join(map(str, todo)) or "none"
    return (SYSTEM, {"role": "user", "content": f"have {have} todo {left}"})


class AddingEnv(AgentEnv):
    """Add ``task["numbers"]`` with ``add(a, b)`` and give the sum with ``answer(value)``.

    Args:
        max_turns: Turns until the episode is truncated.
    """

    def __init__(self, max_turns: int = 5) -> None:
        self.max_turns = max_turns
        self._counters: dict[str, float] = {"calls/valid": 0, "calls/invalid": 0}

    @property
    def counters(self) -> dict[str, float]:
        return self._counters

    async def reset(self, task: Task) -> Observation:
        self._have, *self._todo = task["numbers"]
        self._ctx = ToolContext(task=task, state={"sum": sum(task["numbers"])})
        self._turns = 0
        return self._observe()

    async def step(self, action: Action) -> StepResult:
        self._turns += 1
        out_of_turns = self._turns >= self.max_turns
        if not action.tool_calls:
            self._counters["calls/invalid"] += 1
            return StepResult(self._observe(), 0.0, truncated=out_of_turns)
        call = action.tool_calls[0]
        result = await call_tool(TOOLS.by_name, call.name, call.arguments, self._ctx)
        self._counters["calls/valid" if result.outcome is ToolOutcome.OK else "calls/invalid"] += 1
        if result.response.done:
            reward = result.response.reward or 0.0
            return StepResult(None, reward, terminated=True, info={"success": reward > 0})
        next_addition = call.name == "add" and self._todo and call.arguments == {"a": self._have, "b": self._todo[0]}
        if next_addition and result.outcome is ToolOutcome.OK:
            self._have = int(result.response.text)
            self._todo = self._todo[1:]
        return StepResult(self._observe(), 0.0, truncated=out_of_turns)

    def _observe(self) -> Observation:
        state = f"{self._have} {self._todo}"
        return Observation(show(self._have, self._todo), SPECS, anchor=state)
