"""What every environment must do. Subclass ``EnvKit``, say how to make the environment, a task and some answers.

Answers are texts; they are parsed as the collector parses them, so an environment is tested on what it will meet.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from agentr1_core.env import AgentEnv, StepResult, close_env, reset_env, step_env
from agentr1_core.mdp import Action, Message, Observation, ToolCall, token_array
from agentr1_core.task import Task
from agentr1_core.tool_format import HermesFormat

DEADLINE_S = 60.0

#: What a model may say that no environment expects.
ODD_ANSWERS = (
    "",
    "I do not know.",
    "<tool_call>",
    "<tool_call>{}</tool_call>",
    '<tool_call>{"name": "no_such_tool", "arguments": {}}</tool_call>',
    "\u0000\ud7ff\U0001f600" * 50,
)


def answer(text: str) -> Action:
    """A text as the action an environment receives, calls in the Hermes format parsed."""
    found = HermesFormat().parse(text)
    calls = tuple(ToolCall(name, arguments, f"call_{i}") for i, (name, arguments) in enumerate(found.calls))
    message: Message = {"role": "assistant", "content": found.content}
    if calls:
        message["tool_calls"] = [
            {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    ids = token_array(list(text.encode("utf-8", "replace")) or [0])
    return Action(
        token_ids=ids,
        logprobs=np.full(len(ids), -1.0, dtype=np.float32),
        text=text,
        message=message,
        tool_calls=calls,
        parse_failures=found.failures,
    )


class EnvKit:
    """Checks of the ``AgentEnv`` contract. Override ``make_env``, ``task`` and ``answers``."""

    #: Turns after which an episode of odd answers must have ended or still be well.
    max_turns = 20

    def make_env(self) -> AgentEnv:
        """A new environment."""
        raise NotImplementedError("Override make_env() in your test class.")

    def task(self) -> dict[str, Any]:
        """One row of your data."""
        raise NotImplementedError("Override task() in your test class.")

    def answers(self) -> Sequence[str]:
        """Texts that play your task to its end."""
        raise NotImplementedError("Override answers() in your test class.")

    def _play(self, say: Callable[[int], str], turns: int) -> tuple[Observation, list[StepResult]]:
        async def episode() -> tuple[Observation, list[StepResult]]:
            env = self.make_env()
            results: list[StepResult] = []
            try:
                async with asyncio.timeout(DEADLINE_S):
                    first = await reset_env(env, Task(self.task()))
                    for turn in range(turns):
                        results.append(await step_env(env, answer(say(turn))))
                        if results[-1].terminated or results[-1].truncated:
                            break
            finally:
                await close_env(env)
            return first, results

        return asyncio.run(episode())

    def test_given_answers_play_to_the_end(self) -> None:
        texts = self.answers()
        first, results = self._play(texts.__getitem__, len(texts))
        assert first.messages
        assert len(results) == len(texts), "the episode ended before your last answer"
        assert results[-1].terminated or results[-1].truncated, "the episode goes on after your last answer"

    def test_episodes_of_one_task_begin_alike(self) -> None:
        first, _ = self._play(lambda turn: "", 0)
        again, _ = self._play(lambda turn: "", 0)
        assert first.messages == again.messages
        assert first.tools == again.tools

    def test_messages_have_roles_and_content(self) -> None:
        texts = self.answers()
        first, results = self._play(texts.__getitem__, len(texts))
        for observation in (first, *(result.observation for result in results if result.observation is not None)):
            for message in observation.messages:
                assert message.get("role") in {"system", "developer", "user", "assistant", "tool"}
                assert "content" in message

    @pytest.mark.parametrize("text", ODD_ANSWERS, ids=[f"odd{i}" for i in range(len(ODD_ANSWERS))])
    def test_odd_answers_are_answered(self, text: str) -> None:
        _, results = self._play(lambda turn: text, self.max_turns)
        assert results

    def test_closing_without_a_step_is_harmless(self) -> None:
        self._play(lambda turn: "", 0)
