"""The conformance kits, run on what the core itself brings."""

import pytest

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


class TestScriptedEngineKeepsTheContract(EngineKit):
    @pytest.fixture(autouse=True, scope="class")
    def with_tokenizer(self, request, tokenizer):
        request.cls.tokenizer = tokenizer

    def make_engine(self):
        return ScriptedEngine(self.tokenizer, ["abc"], max_context=512)
