"""The conformance kits, run on components that keep the contract and on some that break it."""

import asyncio

import pytest

from agentr1_core.env import AgentEnv
from agentr1_core.errors import EngineError
from agentr1_core.testing.engine_kit import EngineKit
from agentr1_core.testing.env_kit import EnvKit
from agentr1_core.testing.scripted_engine import ScriptedEngine
from agentr1_core.testing.tool_kit import ToolKit
from agentr1_core.tool import tool
from agentr1_core.tool_env import ToolEnv


@tool
def shout(text: str) -> str:
    """Say it loudly.

    Args:
        text: What.
    """
    return text.upper()


class TestToolKeepsTheContract(ToolKit):
    def make_tool(self):
        return shout

    def good_calls(self):
        return [{"text": "hi"}, {"text": ""}]


class TestToolEnvKeepsTheContract(EnvKit):
    def make_env(self):
        return ToolEnv([shout])

    def task(self):
        return {"prompt": "Shout hi, then stop."}

    def answers(self):
        return ['<tool_call>{"name": "shout", "arguments": {"text": "hi"}}</tool_call>', "Done."]


class StrictScriptedEngine(ScriptedEngine):
    """The scripted engine with the refusals that a real one has."""

    async def generate(self, prompt_ids, sampling, *, session=None):
        if len(prompt_ids) == 0:
            raise EngineError("empty prompt")
        return await super().generate(prompt_ids, sampling, session=session)


class TestEngineKeepsTheContract(EngineKit):
    @pytest.fixture(autouse=True)
    def with_tokenizer(self, tokenizer):
        type(self).tokenizer = tokenizer

    @pytest.fixture(scope="class")
    def engine(self, loop, tokenizer):
        type(self).tokenizer = tokenizer
        return StrictScriptedEngine(tokenizer, ["abc"])

    def make_engine(self):
        return StrictScriptedEngine(self.tokenizer, ["abc"])


class TestEnvThatBreaksItIsFound:
    """The kit fails where the contract is broken."""

    def test_environment_that_crashes_on_odd_answers(self):
        class Brittle(AgentEnv):
            async def reset(self, task):
                return "Give a number."

            async def step(self, action):
                return "next", float(action.text), True, False, {}

        class Kit(EnvKit):
            def make_env(self):
                return Brittle()

            def task(self):
                return {}

            def answers(self):
                return ["1"]

        Kit().test_given_answers_play_to_the_end()
        with pytest.raises(ValueError, match="could not convert"):
            Kit().test_odd_answers_are_answered("I do not know.")

    def test_engine_that_ignores_max_tokens(self, tokenizer):
        class Chatty(ScriptedEngine):
            async def generate(self, prompt_ids, sampling, *, session=None):
                from dataclasses import replace

                return await super().generate(prompt_ids, replace(sampling, max_tokens=9), session=session)

        class Kit(EngineKit):
            def make_engine(self):
                return Chatty(tokenizer, ["abcdef"])

        from agentr1_core.blocking import BlockingLoop

        loop = BlockingLoop()
        engine = Kit().make_engine()
        loop.run(engine.start())
        with pytest.raises(AssertionError):
            Kit().test_max_tokens_is_kept_and_said(loop, engine)
        loop.run(asyncio.sleep(0))
        loop.close()
