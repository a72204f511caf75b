"""What a tool holds for one episode is closed with it, however it ends."""

import asyncio

import numpy as np
import pytest

from agentr1_core import AgentEnvLoop, ToolContext, ToolEnv, tool
from agentr1_core.mdp import Action, ToolCall
from agentr1_core.task import Task


class Ledger:
    """Counts what is open."""

    def __init__(self):
        self.events = []

    def tool(self):
        @tool
        async def borrow(what: str, ctx: ToolContext) -> str:
            """Borrow something until the episode ends.

            Args:
                what: What.
            """
            self.events.append(f"open {what}")
            ctx.cleanup.callback(self.events.append, f"close {what}")
            return what

        return borrow


def act(*whats):
    return Action(
        token_ids=np.array([1], dtype=np.int32),
        logprobs=np.array([-1.0], dtype=np.float32),
        text="",
        message={"role": "assistant", "content": ""},
        tool_calls=tuple(ToolCall("borrow", {"what": what}, what) for what in whats),
    )


def test_it_is_closed_last_in_first_out(run):
    ledger = Ledger()

    async def episode():
        env = ToolEnv([ledger.tool()])
        await env.reset(Task({"prompt": "Go"}))
        await env.step(act("a"))
        await env.step(act("b"))
        assert ledger.events == ["open a", "open b"]
        await env.close()

    run(episode())
    assert ledger.events == ["open a", "open b", "close b", "close a"]


def test_a_second_reset_closes_the_first_episode(run):
    ledger = Ledger()

    async def episodes():
        env = ToolEnv([ledger.tool()])
        await env.reset(Task({"prompt": "Go"}))
        await env.step(act("a"))
        await env.reset(Task({"prompt": "Go"}))
        assert ledger.events == ["open a", "close a"]
        await env.close()

    run(episodes())
    assert ledger.events == ["open a", "close a"]


def test_one_that_does_not_close_keeps_no_other_open(run):
    ledger = Ledger()

    @tool
    async def borrow(what: str, ctx: ToolContext) -> str:
        """Borrow something that breaks."""

        async def breaks():
            raise OSError("gone")

        ctx.cleanup.callback(ledger.events.append, f"close {what}")
        ctx.cleanup.push_async_callback(breaks)
        return what

    async def episode():
        env = ToolEnv([borrow])
        await env.reset(Task({"prompt": "Go"}))
        await env.step(act("a"))
        with pytest.raises(OSError, match="gone"):
            await env.close()

    run(episode())
    assert ledger.events == ["close a"]


@pytest.mark.parametrize("ending", ["failure", "time-out", "cancellation"])
def test_the_loop_closes_it_when_the_episode_breaks(run, ending):
    """The generic loop around ToolEnv, with an engine that breaks after the first turn."""
    ledger = Ledger()

    class Context:
        step_timeout_s = 0.2 if ending == "time-out" else None
        turns = 0
        waiting = asyncio.Event()

        async def generate(self, observation):
            self.turns += 1
            if self.turns == 2:
                if ending == "failure":
                    raise RuntimeError("engine died")
                self.waiting.set()
                await asyncio.sleep(30)
            return act("a")

        def record(self, action, result):
            pass

        def count(self, counters):
            pass

    async def episode():
        loop = AgentEnvLoop(lambda task: ToolEnv([ledger.tool()]))
        playing = asyncio.create_task(loop.run(Task({"prompt": "Go"}), Context()))
        if ending == "cancellation":
            await Context.waiting.wait()
            playing.cancel()
        await asyncio.wait({playing})
        assert playing.cancelled() or playing.exception() is not None

    run(episode())
    assert ledger.events == ["open a", "close a"]
