"""ToolEnv: several calls a turn, and what the model is told when a call is wrong."""

import asyncio

import numpy as np
import pytest

from agentr1_core.errors import ConfigError, DataError
from agentr1_core.mdp import Action, ParseFailure, ParseStatus, ToolCall
from agentr1_core.task import Task
from agentr1_core.tool import ToolContext, ToolResponse, tool
from agentr1_core.tool_env import ToolEnv


def act(*calls, failures=(), text=""):
    return Action(
        token_ids=np.array([1], dtype=np.int32),
        logprobs=np.array([-1.0], dtype=np.float32),
        text=text,
        message={"role": "assistant", "content": text},
        tool_calls=tuple(ToolCall(name, arguments, f"call_{i}") for i, (name, arguments) in enumerate(calls)),
        parse_failures=failures,
    )


@tool
def double(n: int) -> int:
    """Double."""
    return 2 * n


@tool
def finish(score: float) -> ToolResponse:
    """End."""
    return ToolResponse("bye", reward=score, done=True)


def play(run, env, *actions, row=None):
    async def all_of_it():
        first = await env.reset(Task(row or {"prompt": "Go"}))
        return first, [await env.step(action) for action in actions]

    return run(all_of_it())


def test_answer_without_a_call_ends_the_episode(run):
    first, (result,) = play(run, ToolEnv([double], system_prompt="Be brief."), act(text="42"))
    assert [message["role"] for message in first.messages] == ["system", "user"]
    assert first.tools == (double.spec,)
    assert (result.terminated, result.observation, result.reward) == (True, None, None)


def test_calls_of_one_turn_run_at_the_same_time_and_answer_in_order(run):
    both_here = asyncio.Barrier(2)

    @tool
    async def meet(who: str) -> str:
        """Wait for the other."""
        await both_here.wait()
        return who

    _, (result,) = play(run, ToolEnv([meet], tool_timeout_s=5), act(("meet", {"who": "a"}), ("meet", {"who": "b"})))
    answers = result.observation.messages[-2:]
    assert [(answer["tool_call_id"], answer["content"]) for answer in answers] == [("call_0", "a"), ("call_1", "b")]


def test_wrong_calls_are_answered_and_counted(run):
    env = ToolEnv([double], max_result_chars=1)
    broken = ParseFailure(ParseStatus.INVALID_JSON, "<tool_call>{</tool_call>")
    action = act(("double", {"n": 50}), ("triple", {}), ("double", {"n": "x"}), failures=(broken,))
    _, (result,) = play(run, env, action)
    assert not result.terminated
    assert "not valid JSON" in result.observation.messages[-1]["content"]
    assert dict(env.counters) == {
        "tools/calls": 3,
        "tools/parse_failures": 1,
        "tools/ok": 1,
        "tools/unknown_tool": 1,
        "tools/bad_arguments": 1,
        "tools/shortened": 1,
    }


def test_rewards_and_the_end_come_from_tools(run):
    _, (result,) = play(run, ToolEnv([finish]), act(("finish", {"score": 0.25}), ("finish", {"score": 0.5})))
    assert (result.reward, result.terminated) == (0.75, True)


def test_tools_get_their_own_arguments_of_the_row_and_share_state(run):
    seen = []

    @tool
    def peek(ctx: ToolContext) -> str:
        """Look."""
        seen.append(dict(ctx.kwargs))
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        return str(ctx.state["n"])

    row = {"prompt": "Go", "tools_kwargs": '{"peek": {"index": 7}}'}
    _, results = play(run, ToolEnv([peek]), act(("peek", {})), act(("peek", {})), row=row)
    assert seen == [{"index": 7}, {"index": 7}]
    assert results[-1].observation.messages[-1]["content"] == "2"


def test_missing_prompt_names_the_row(run):
    with pytest.raises(DataError, match="column 'prompt' is missing or empty"):
        play(run, ToolEnv(), row={"question": "?"})


def test_secrets_reach_tools_and_nothing_else(run, monkeypatch):
    monkeypatch.setenv("WEATHER_KEY", "s3cret")

    @tool
    def sign(ctx: ToolContext) -> str:
        """Use the key."""
        assert "s3cret" not in repr(ctx)
        return str(len(ctx.secrets["WEATHER_KEY"]))

    first, (result,) = play(run, ToolEnv([sign], secrets_from=["WEATHER_KEY"]), act(("sign", {})))
    assert result.observation.messages[-1]["content"] == "6"
    assert "s3cret" not in repr((first, result))
    with pytest.raises(ConfigError, match="environment variable 'NO_SUCH_KEY' is not set"):
        ToolEnv([sign], secrets_from=["NO_SUCH_KEY"])
