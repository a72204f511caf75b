"""What every environment must do. Subclass ``EnvKit``, say how to make the environment, a task and some answers.

Answers are texts; they are parsed as the collector parses them, so an environment is tested on what it will meet.
An environment that has ``snapshot()`` and ``restore(state)`` claims that an episode can go on from a saved state.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jsonschema
import numpy as np
import pytest

from agentr1_core.env import AgentEnv, StepResult, close_env, reset_env, step_env
from agentr1_core.mdp import Action, Message, Observation, ToolCall, token_array
from agentr1_core.task import Task
from agentr1_core.testing.rules import rule
from agentr1_core.tool_format import HermesFormat

T = TypeVar("T")
DEADLINE_S = 60.0
ROLES = {"system", "developer", "user", "assistant", "tool"}

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


@dataclass(frozen=True, slots=True)
class Played:
    """One episode: what was shown, as it was when it was shown, and what each answer got."""

    first: Observation
    results: tuple[StepResult, ...]
    #: ``first`` and the results' observations, copied at the time.
    shown: tuple[Observation | None, ...]

    @property
    def observations(self) -> tuple[Observation, ...]:
        """All that the model saw, in order."""
        later = (result.observation for result in self.results)
        return (self.first, *(observation for observation in later if observation is not None))

    @property
    def outcome(self) -> list[Any]:
        """All of it but ``info``, in a form that can be compared."""
        said = [_plain(self.first)]
        return said + [(_plain(r.observation), r.reward, r.terminated, r.truncated) for r in self.results]


class EnvKit:
    """Checks of the ``AgentEnv`` contract. Override ``make_env``, ``task`` and ``answers``."""

    #: Turns after which an episode of odd answers must have ended or still be well.
    max_turns = 20
    #: Whether the same task and answers give the same episode; False for environments that ask the outside world.
    deterministic = True

    def make_env(self) -> AgentEnv:
        """A new environment."""
        raise NotImplementedError("Override make_env() in your test class.")

    def task(self) -> dict[str, Any]:
        """One row of your data, with whatever your environment reads as its seed."""
        raise NotImplementedError("Override task() in your test class.")

    def answers(self) -> Sequence[str]:
        """Texts that play your task to its end."""
        raise NotImplementedError("Override answers() in your test class.")

    def answers_into_a_limit(self) -> Sequence[str] | None:
        """Texts that run into a limit of yours which is not part of the task (turns, time); ``None`` for no limit."""
        return None

    @rule("env/contract")
    def test_given_answers_play_to_the_end(self) -> None:
        texts = self.answers()
        results = self.play(texts).results
        assert len(results) == len(texts), "the episode ended before your last answer"
        assert results[-1].terminated or results[-1].truncated, "the episode goes on after your last answer"

    @rule("env/close")
    def test_closing_is_harmless_at_any_time(self) -> None:
        async def close_early() -> None:
            await close_env(self.make_env())  # never reset: the collector closes it when reset fails
            env = self.make_env()
            await reset_env(env, Task(self.task()))
            await close_env(env)

        asyncio.run(close_early())

    @rule("env/determinism")
    def test_same_task_and_answers_give_the_same_episode(self) -> None:
        if not self.deterministic:
            pytest.skip("the environment says that its episodes differ")
        assert self.play(self.answers()).outcome == self.play(self.answers()).outcome, (
            "two episodes of one task differ: draw from a generator seeded by the task"
        )

    @rule("env/isolation")
    def test_episodes_at_once_do_not_disturb_each_other(self) -> None:
        if not self.deterministic:
            pytest.skip("the environment says that its episodes differ")
        texts = self.answers()
        alone = self.play(texts).outcome

        async def in_lockstep() -> list[Played]:
            envs = [self.make_env() for _ in range(3)]
            try:
                firsts = [await reset_env(env, Task(self.task())) for env in envs]
                results: list[list[StepResult]] = [[] for _ in envs]
                for text in texts:
                    for env, so_far in zip(envs, results, strict=True):
                        so_far.append(await step_env(env, answer(text)))
            finally:
                for env in envs:
                    await close_env(env)
            return [Played(first, tuple(r), ()) for first, r in zip(firsts, results, strict=True)]

        for played in self._bounded(in_lockstep()):
            assert played.outcome == alone, "an episode differs when others run: keep state on the instance"

    @rule("env/endings")
    def test_an_episode_ends_in_one_way(self) -> None:
        for text in (*ODD_ANSWERS, None):
            results = self.play(self.answers() if text is None else [text] * self.max_turns).results
            both = [turn for turn, result in enumerate(results) if result.terminated and result.truncated]
            assert not both, f"step {both[0]} is terminated and truncated: the task is over, or a limit cut it"

    @rule("env/truncation")
    def test_a_limit_truncates_and_does_not_terminate(self) -> None:
        texts = self.answers_into_a_limit()
        if texts is None:
            pytest.skip("the environment has no limit of its own")
        last = self.play(texts).results[-1]
        assert last.truncated, "after answers_into_a_limit() the episode is not truncated"
        assert not last.terminated, "a limit that is not part of the task truncates; it does not terminate"

    @rule("env/observations")
    def test_observations_are_messages_and_tools(self) -> None:
        for observation in self.play(self.answers()).observations:
            for message in observation.messages:
                assert message.get("role") in ROLES, f"no role of a chat: {message!r}"
                content = message.get("content", 0)
                text = content is None or isinstance(content, str)
                parts = isinstance(content, list) and all(isinstance(part, dict) and "type" in part for part in content)
                assert text or parts, f"content is a text or a list of typed parts: {message!r}"
            json.dumps(observation.messages)  # stored with the trajectory
            for spec in observation.tools:
                missing = {"name", "description", "parameters"}.difference(spec)
                assert not missing, f"a tool without {', '.join(sorted(missing))}: {spec!r}"
                jsonschema.Draft202012Validator.check_schema(spec["parameters"])
            assert observation.anchor is None or isinstance(observation.anchor, str), "an anchor is a text"

    @rule("env/no-rewriting")
    def test_what_was_shown_stays_as_it_was(self) -> None:
        played = self.play(self.answers())
        now = (played.first, *(result.observation for result in played.results))
        for turn, (before, after) in enumerate(zip(played.shown, now, strict=True)):
            assert _plain(before) == _plain(after), f"observation {turn} was changed after it was shown: return a copy"

    @pytest.mark.parametrize("text", ODD_ANSWERS, ids=[f"odd{i}" for i in range(len(ODD_ANSWERS))])
    @rule("env/odd-answers")
    def test_odd_answers_are_answered(self, text: str) -> None:
        assert self.play([text] * self.max_turns).results

    @rule("env/counters")
    def test_counters_are_numbers(self) -> None:
        texts = self.answers()

        async def count() -> dict[str, Any]:
            env = self.make_env()
            try:
                await reset_env(env, Task(self.task()))
                for text in texts:
                    await step_env(env, answer(text))
                return dict(env.counters)
            finally:
                await close_env(env)

        for name, value in self._bounded(count()).items():
            assert isinstance(value, int | float), f"counter '{name}' is {value!r}"

    @rule("env/snapshot")
    def test_a_restored_episode_goes_on_as_the_saved_one(self) -> None:
        if not (hasattr(self.make_env(), "snapshot") and hasattr(self.make_env(), "restore")):
            pytest.skip("the environment claims no snapshots")
        texts = self.answers()
        half = len(texts) // 2

        async def save_and_go_on() -> tuple[list[Any], list[Any]]:
            env, other = self.make_env(), self.make_env()
            try:
                await reset_env(env, Task(self.task()))
                for text in texts[:half]:
                    await step_env(env, answer(text))
                state = await _maybe_await(env.snapshot())  # type: ignore[attr-defined]
                rest = [await step_env(env, answer(text)) for text in texts[half:]]
                await reset_env(other, Task(self.task()))
                await _maybe_await(other.restore(state))  # type: ignore[attr-defined]
                again = [await step_env(other, answer(text)) for text in texts[half:]]
            finally:
                await close_env(env)
                await close_env(other)
            nothing = Observation(())
            return Played(nothing, tuple(rest), ()).outcome, Played(nothing, tuple(again), ()).outcome

        went_on, restored = self._bounded(save_and_go_on())
        assert restored == went_on, "a new environment that was given the snapshot plays otherwise"

    def play(self, texts: Sequence[str]) -> Played:
        """Play the texts until the episode ends."""

        async def episode() -> Played:
            env = self.make_env()
            results: list[StepResult] = []
            try:
                first = await reset_env(env, Task(self.task()))
                shown: list[Observation | None] = [copy.deepcopy(first)]
                for text in texts:
                    results.append(await step_env(env, answer(text)))
                    shown.append(copy.deepcopy(results[-1].observation))
                    if results[-1].terminated or results[-1].truncated:
                        break
            finally:
                await close_env(env)
            return Played(first, tuple(results), tuple(shown))

        return self._bounded(episode())

    def _bounded(self, work: Awaitable[T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(DEADLINE_S):
                return await work

        return asyncio.run(bounded())


async def _maybe_await(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _plain(observation: Observation | None) -> Any:
    """What the model sees of it."""
    return None if observation is None else (list(observation.messages), list(observation.tools), observation.anchor)
