"""What every engine that answers in text must do. Subclass ``ChatEngineKit`` and say how to make the engine.

The rules of ``EngineKit`` that are about tokens, log-probs and weights do not apply, and are reported as skipped.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any, TypeVar

import pytest

from agentr1_core.blocking import BlockingLoop
from agentr1_core.chat_engine import ChatEngine, ChatReply
from agentr1_core.engine import SamplingParams
from agentr1_core.errors import EngineError, PluginError
from agentr1_core.mdp import Message, ToolSpec
from agentr1_core.testing.engine_kit import DEADLINE_S
from agentr1_core.testing.rules import rule

T = TypeVar("T")

#: Rules of ``EngineKit`` about what an engine of this kind does not have.
TOKEN_RULES = (
    *("engine/tokens", "engine/max-tokens", "engine/stop", "engine/logprobs", "engine/context", "engine/cache"),
    *("engine/abort", "engine/abort-nothing", "engine/versions", "engine/unknown-weights"),
)


class ChatEngineKit:
    """Checks of the ``ChatEngine`` contract. Override ``make_engine``; ``tools`` where the service wants others."""

    def make_engine(self) -> ChatEngine:
        """A new engine, not started."""
        raise NotImplementedError("Override make_engine() in your test class.")

    def messages(self, variant: int = 0) -> list[Message]:
        """Different conversations for different ``variant``."""
        return [{"role": "user", "content": f"Say a word about the number {variant}."}]

    def tools(self) -> Sequence[ToolSpec]:
        """Tools to offer; empty for a service that takes none."""
        properties = {"query": {"type": "string", "description": "What to look for."}}
        parameters = {"type": "object", "properties": properties, "required": ["query"]}
        return [{"name": "search", "description": "Look something up.", "parameters": parameters}]

    @pytest.fixture(scope="class")
    @classmethod
    def loop(cls) -> Iterator[BlockingLoop]:
        loop = BlockingLoop()
        yield loop
        loop.close()

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, loop: BlockingLoop) -> Iterator[ChatEngine]:
        engine = cls().make_engine()
        loop.run(engine.start())
        yield engine
        loop.run(engine.close())

    def _run(self, loop: BlockingLoop, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(DEADLINE_S):
                return await work

        return loop.run(bounded())

    def _chat(self, loop: BlockingLoop, engine: ChatEngine, **sampling: Any) -> ChatReply:
        return self._run(loop, engine.chat(self.messages(), (), SamplingParams(**{"max_tokens": 8, **sampling})))

    @rule("chat/start")
    def test_starting_twice_leaves_it_healthy(self, loop: BlockingLoop, engine: ChatEngine) -> None:
        assert self._run(loop, engine.health()).ready, "it is not ready once started"
        self._run(loop, engine.start())
        assert self._run(loop, engine.health()).ready, "it is not ready once started twice"

    @rule("chat/capabilities")
    def test_it_claims_no_tokens(self, engine: ChatEngine) -> None:
        have = engine.capabilities
        assert not have.token_ids, "an engine that answers in text claims to give token ids"
        assert not have.logprobs, "an engine that answers in text claims to give log-probs"
        assert not have.weight_sync, "an engine that answers in text claims to take weights"
        with pytest.raises(PluginError, match=engine.name):
            engine.require(token_ids=True)

    @pytest.mark.parametrize("name", TOKEN_RULES)
    def test_rules_about_tokens_do_not_apply(self, engine: ChatEngine, name: str) -> None:
        pytest.skip(f"rule '{name}' does not apply: engine '{engine.name}' answers in text and cannot be trained")

    @rule("chat/reply")
    def test_a_reply_is_an_assistant_message(self, loop: BlockingLoop, engine: ChatEngine) -> None:
        reply = self._chat(loop, engine)
        assert reply.message["role"] == "assistant", f"the message's role is {reply.message['role']!r}"
        assert isinstance(reply.message["content"], str), "the message's content is text"
        calls = [call["function"] for call in reply.message.get("tool_calls", ())]
        told = [(call["name"], call["arguments"]) for call in calls]
        assert told == [(call.name, call.arguments) for call in reply.tool_calls], "the message has other calls"
        json.dumps(reply.message)

    @rule("chat/max-tokens")
    def test_max_tokens_is_kept(self, loop: BlockingLoop, engine: ChatEngine) -> None:
        reply = self._chat(loop, engine, max_tokens=3)
        if reply.usage is None:
            pytest.skip(f"engine '{engine.name}' does not count tokens")
        assert reply.usage.sampled <= 3, f"{reply.usage.sampled} tokens under max_tokens=3"
        assert 0 <= reply.usage.cached <= reply.usage.prompt, "more of the prompt was cached than it has"

    @rule("chat/tools")
    def test_a_conversation_with_calls_goes_on(self, loop: BlockingLoop, engine: ChatEngine) -> None:
        if not self.tools():
            pytest.skip(f"engine '{engine.name}' takes no tools")
        call = {"type": "function", "id": "call_0", "function": {"name": "search", "arguments": {"query": "7"}}}
        said: list[Message] = [
            *self.messages(),
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_0", "name": "search", "content": "Seven is prime."},
        ]
        before = json.dumps(said)
        reply = self._run(loop, engine.chat(said, self.tools(), SamplingParams(max_tokens=8)))
        assert reply.message["role"] == "assistant"
        assert json.dumps(said) == before, "it changed the conversation it was given"

    @rule("chat/concurrency")
    def test_many_at_once(self, loop: BlockingLoop, engine: ChatEngine) -> None:
        async def many() -> list[ChatReply]:
            sampling = SamplingParams(max_tokens=4)
            return await asyncio.gather(*(engine.chat(self.messages(i), (), sampling) for i in range(32)))

        assert len(self._run(loop, many())) == 32

    @rule("chat/empty")
    def test_an_empty_conversation_is_refused(self, loop: BlockingLoop, engine: ChatEngine) -> None:
        with pytest.raises(EngineError):
            self._run(loop, engine.chat([], (), SamplingParams(max_tokens=2)))

    @rule("chat/cancellation")
    def test_cancelled_caller_leaves_the_engine_usable(self, loop: BlockingLoop, engine: ChatEngine) -> None:
        async def cancelled() -> bool:
            call = asyncio.create_task(engine.chat(self.messages(), (), SamplingParams(max_tokens=256)))
            await asyncio.sleep(0.02)
            call.cancel()
            await asyncio.wait({call})
            return call.cancelled() or call.exception() is None

        assert self._run(loop, cancelled()), "a cancelled call ended with an error of its own"
        assert self._chat(loop, engine).message["role"] == "assistant"

    @rule("chat/closed")
    def test_a_closed_engine_says_so(self, loop: BlockingLoop) -> None:
        engine = self.make_engine()
        self._run(loop, engine.start())
        self._run(loop, engine.close())
        with pytest.raises(EngineError):
            self._chat(loop, engine)
        assert not self._run(loop, engine.health()).ready, "it says that it is ready after it was closed"

    @rule("chat/close")
    def test_closing_twice_or_unstarted_is_harmless(self, loop: BlockingLoop) -> None:
        started, never = self.make_engine(), self.make_engine()
        self._run(loop, started.start())
        for engine in (started, started, never):
            self._run(loop, engine.close())
