"""A chat engine for each rule that breaks it, and what the kit says of it."""

import asyncio
from dataclasses import replace

import pytest

from agentr1_core.blocking import BlockingLoop
from agentr1_core.chat_engine import ChatEngine, ChatReply
from agentr1_core.engine import EngineCapabilities, Health
from agentr1_core.errors import EngineError
from agentr1_core.mdp import TokenUsage
from agentr1_core.testing.chat_engine_kit import TOKEN_RULES, ChatEngineKit
from agentr1_core.testing.engine_kit import EngineKit
from agentr1_core.testing.rules import rules_of


class Good(ChatEngine):
    """Says the same to everybody; the broken ones change one thing each."""

    name = "good"

    def __init__(self):
        self.starts = self.running = 0
        self.open = False

    @property
    def capabilities(self):
        return EngineCapabilities(token_ids=False, logprobs=False)

    async def start(self):
        self.starts += 1
        self.open = True

    async def chat(self, messages, tools, sampling, *, session=None):
        if not self.open or not messages:
            raise EngineError("It is closed, or there is nothing to answer.")
        await asyncio.sleep(0.05)
        message = {"role": "assistant", "content": "Seven."}
        return ChatReply("Seven.", message, usage=TokenUsage(5, min(2, sampling.max_tokens)))

    async def health(self):
        return Health(ready=self.open)

    async def close(self):
        self.open = False


def replying(**fields):
    """A good engine whose replies have other fields."""

    class Replying(Good):
        async def chat(self, messages, tools, sampling, *, session=None):
            return replace(await super().chat(messages, tools, sampling, session=session), **fields)

    return Replying


class StartsOnce(Good):
    async def start(self):
        await super().start()
        self.open = self.starts == 1


class ClaimsTokens(Good):
    @property
    def capabilities(self):
        return EngineCapabilities()


class MarksItsInput(Good):
    async def chat(self, messages, tools, sampling, *, session=None):
        if messages:
            messages[0]["seen"] = True
        return await super().chat(messages, tools, sampling, session=session)


class ServesOneAtATime(Good):
    async def chat(self, messages, tools, sampling, *, session=None):
        if self.running:
            raise EngineError("too many requests")
        self.running += 1
        try:
            return await super().chat(messages, tools, sampling, session=session)
        finally:
            self.running -= 1


class AnswersNothing(Good):
    async def chat(self, messages, tools, sampling, *, session=None):
        return await super().chat(messages or [{}], tools, sampling, session=session)


class BreaksWhenCancelled(Good):
    async def chat(self, messages, tools, sampling, *, session=None):
        try:
            return await super().chat(messages, tools, sampling, session=session)
        except asyncio.CancelledError:
            raise EngineError("the connection is gone") from None


class GoesOnWhenClosed(Good):
    async def close(self):
        """Nothing is released."""


class ClosesOnce(Good):
    async def close(self):
        if not self.open:
            raise EngineError("closed already")
        await super().close()


class Kit(ChatEngineKit):
    engine_class = Good

    def make_engine(self):
        return self.engine_class()


class TestGoodKeepsTheContract(Kit):
    pass


BROKEN = {
    "starts once": (StartsOnce, "chat/start", "started twice"),
    "claims tokens": (ClaimsTokens, "chat/capabilities", "claims to give token ids"),
    "another role": (replying(message={"role": "user", "content": ""}), "chat/reply", "role is 'user'"),
    "content is missing": (replying(message={"role": "assistant", "content": None}), "chat/reply", "is text"),
    "too many tokens": (replying(usage=TokenUsage(5, 9)), "chat/max-tokens", "9 tokens under max_tokens=3"),
    "more cached than there is": (replying(usage=TokenUsage(5, 1, 6)), "chat/max-tokens", "than it has"),
    "changes its input": (MarksItsInput, "chat/tools", "changed the conversation"),
    "few at once": (ServesOneAtATime, "chat/concurrency", "too many requests"),
    "answers nothing": (AnswersNothing, "chat/empty", "DID NOT RAISE"),
    "breaks when cancelled": (BreaksWhenCancelled, "chat/cancellation", "an error of its own"),
    "goes on when closed": (GoesOnWhenClosed, "chat/closed", "DID NOT RAISE"),
    "closes once": (ClosesOnce, "chat/close", "closed already"),
}


@pytest.mark.parametrize(("engine", "rule", "why"), BROKEN.values(), ids=BROKEN)
def test_a_broken_engine_fails_its_rule(told, engine, rule, why):
    loop = BlockingLoop()
    try:
        kit = type("BrokenKit", (Kit,), {"engine_class": engine})
        made = engine()
        loop.run(made.start())
        assert why in told(kit, rule, loop=loop, engine=made)
    finally:
        loop.close()


def test_every_rule_of_chat_engines_has_a_broken_one():
    assert {rule for _, rule, _ in BROKEN.values()} == set(rules_of(ChatEngineKit))


def test_the_rules_that_do_not_apply_are_rules_of_the_other_kit():
    assert set(TOKEN_RULES) <= set(rules_of(EngineKit))
