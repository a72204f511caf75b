"""The built-in multi-turn tool-calling environment: configure it, implement nothing.

It shows the task's prompt, runs the tool calls of each turn concurrently, appends what they answer, and ends when
the model answers without calling a tool. A call that does not parse is answered and counted, never dropped.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack

from agentr1_core.env import AgentEnv, StepResult
from agentr1_core.errors import ConfigError, DataError
from agentr1_core.mdp import Action, Message, Observation, ParseFailure
from agentr1_core.task import Task
from agentr1_core.tool import BaseTool, ToolBox, ToolContext, ToolResult, call_tool


class ToolEnv(AgentEnv):
    """Tools plus a prompt.

    Args:
        tools: The tools on offer.
        system_prompt: Shown before the task's prompt; a system message in the task is kept and comes second.
        tool_timeout_s: Deadline in seconds of one call, unless the tool has its own.
        max_result_chars: Longest tool answer shown to the model.
        stop_on_failed_parse: End the episode at the first call that does not parse instead of answering it.
        secrets_from: Environment variables whose values tools may read as ``ctx.secrets``; their names alone stand in
            run files.

    Raises:
        ConfigError: One of the variables is not set.
    """

    def __init__(
        self,
        tools: Sequence[BaseTool] | ToolBox = (),
        *,
        system_prompt: str | None = None,
        tool_timeout_s: float | None = 30.0,
        max_result_chars: int | None = 8000,
        stop_on_failed_parse: bool = False,
        secrets_from: Sequence[str] = (),
    ) -> None:
        box = tools if isinstance(tools, ToolBox) else ToolBox(list(tools))
        self.tools = box.by_name
        self.system_prompt = system_prompt
        self.tool_timeout_s = tool_timeout_s
        self.max_result_chars = max_result_chars
        self.stop_on_failed_parse = stop_on_failed_parse
        self._counters: Counter[str] = Counter()
        self._specs = tuple(item.spec for item in self.tools.values())
        self._cleanup = AsyncExitStack()
        self._secrets = {name: _secret(name) for name in secrets_from}

    @property
    def counters(self) -> Mapping[str, float]:
        return self._counters

    async def reset(self, task: Task) -> Observation:
        if not task.prompt:
            raise DataError(
                f"{task.where}: column 'prompt' is missing or empty.", "ToolEnv shows the prompt first; give it one."
            )
        await self._cleanup.aclose()
        self._task = task
        self._state: dict[str, object] = {}
        head: list[Message] = []
        if self.system_prompt is not None:
            head.append({"role": "system", "content": self.system_prompt})
        self._messages: tuple[Message, ...] = (*head, *task.prompt)
        return self._observe()

    async def step(self, action: Action) -> StepResult:
        self._messages = (*self._messages, action.message)
        self._counters["tools/calls"] += len(action.tool_calls)
        self._counters["tools/parse_failures"] += len(action.parse_failures)
        if not action.tool_calls and not action.parse_failures:
            return StepResult(None, terminated=True)
        results = await asyncio.gather(*(self._run(call.name, call.arguments) for call in action.tool_calls))
        answers: list[Message] = [
            {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": result.response.text}
            for call, result in zip(action.tool_calls, results, strict=True)
        ]
        answers.extend(_answer_to(failure) for failure in action.parse_failures)
        self._messages = (*self._messages, *answers)
        rewards = [result.response.reward for result in results if result.response.reward is not None]
        done = any(result.response.done for result in results)
        return StepResult(
            observation=self._observe(),
            reward=sum(rewards) if rewards else None,
            terminated=done or (self.stop_on_failed_parse and bool(action.parse_failures)),
            info={"tools": tuple(result.outcome.value for result in results)},
        )

    async def close(self) -> None:
        """Close what tools hold for this episode."""
        await self._cleanup.aclose()

    async def _run(self, name: str, arguments: dict[str, object]) -> ToolResult:
        ctx = ToolContext(
            self._task, self._task.tools_kwargs.get(name) or {}, self._state, self._cleanup, self._secrets
        )
        result = await call_tool(
            self.tools, name, arguments, ctx, timeout_s=self.tool_timeout_s, max_chars=self.max_result_chars
        )
        self._counters[f"tools/{result.outcome.value}"] += 1
        self._counters["tools/shortened"] += result.shortened
        return result

    def _observe(self) -> Observation:
        return Observation(self._messages, self._specs)


def _answer_to(failure: ParseFailure) -> Message:
    # A user message: chat templates reject tool messages that answer no recorded call.
    return {"role": "user", "content": f"{failure.explain()} Your call was: {failure.raw}"}


def _secret(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        raise ConfigError(
            f"`env.secrets_from`: the environment variable '{name}' is not set.", f"Set it: export {name}=..."
        )
    return value
