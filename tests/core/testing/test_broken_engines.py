"""An engine for each rule that breaks it, and what the kit says of it."""

import asyncio
import itertools
from dataclasses import replace

import numpy as np
import pytest

from agentr1_core.blocking import BlockingLoop
from agentr1_core.engine import Generation, Health
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason, VersionSpan, float_array, token_array
from agentr1_core.testing.engine_kit import EngineKit
from agentr1_core.testing.rules import rules_of
from agentr1_core.testing.scripted_engine import ScriptedEngine


class Letters:
    """A tokenizer of letters; the kit's prompts are of ids below 16."""

    eos_token_id = 2

    def encode(self, text):
        return [ord(letter) for letter in text]

    def decode(self, ids):
        return "".join(map(chr, ids))


class Good(ScriptedEngine):
    """Says ``abcdef`` and reports cached prefixes; the broken ones change one thing each."""

    def __init__(self):
        super().__init__(Letters(), lambda prompt: "abcdef", max_context=2048)
        self.seen = {}

    @property
    def capabilities(self):
        return replace(super().capabilities, prefix_cache=True)

    async def generate(self, prompt_ids, sampling, *, session=None):
        generation = await super().generate(prompt_ids, sampling, session=session)
        pairs = zip(self.seen.get(session, []), prompt_ids.tolist()[:-1], strict=False)
        shared = list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.seen[session] = [*prompt_ids.tolist(), *generation.token_ids.tolist()]
        return replace(generation, cached_tokens=len(shared))

    async def update_weights(self, weights, version):
        await super().update_weights(weights, version)
        self.seen.clear()


def changed(**fields):
    """A good engine whose generations have other fields; a field may be a function of the generation."""

    class Changed(Good):
        async def generate(self, prompt_ids, sampling, *, session=None):
            generation = await super().generate(prompt_ids, sampling, session=session)
            made = {name: value(generation) if callable(value) else value for name, value in fields.items()}
            return replace(generation, **made)

    return Changed


def sampled(choose):
    """A good engine that changes the sampling parameters before it follows them."""

    class Sampled(Good):
        async def generate(self, prompt_ids, sampling, *, session=None):
            return await super().generate(prompt_ids, choose(sampling), session=session)

    return Sampled


class StartsAnew(Good):
    starts = 0

    async def start(self):
        self.starts += 1

    async def health(self):
        return Health(ready=self.starts == 1)


class ForgetsLogprobs(Good):
    async def generate(self, prompt_ids, sampling, *, session=None):
        generation = await super().generate(prompt_ids, sampling, session=session)
        return replace(generation, logprobs=generation.logprobs[:-1])


class SaysMoreEachTime(Good):
    async def generate(self, prompt_ids, sampling, *, session=None):
        self.script = lambda prompt: "abc" * len(self.calls)
        return await super().generate(prompt_ids, sampling, session=session)


class ServesOneAtATime(Good):
    running = 0

    async def generate(self, prompt_ids, sampling, *, session=None):
        self.running += 1
        try:
            if self.running > 4:
                raise EngineError("out of memory")
            await asyncio.sleep(0)
            return await super().generate(prompt_ids, sampling, session=session)
        finally:
            self.running -= 1


class Lenient(Good):
    """Answers whatever the prompt."""

    async def generate(self, prompt_ids, sampling, *, session=None):
        return await super().generate(token_array([3]), sampling, session=session)


class Overflows(Good):
    """Knows its limit and goes beyond it."""

    async def generate(self, prompt_ids, sampling, *, session=None):
        return await super().generate(token_array([3]), replace(sampling, max_tokens=7), session=session)


class CannotStop(Good):
    async def generate(self, prompt_ids, sampling, *, session=None):
        n = sampling.max_tokens
        if n < 10_000:
            return await super().generate(prompt_ids, sampling, session=session)
        return Generation(
            token_array([5] * n), float_array([-1.0] * n), FinishReason.LENGTH, (VersionSpan(n, self.version),)
        )


class AbortsOnlyWhatRuns(Good):
    async def abort(self, session):
        raise EngineError(f"no session '{session}'")


class BreaksWhenCancelled(Good):
    gone = False

    async def generate(self, prompt_ids, sampling, *, session=None):
        if self.gone:
            raise EngineError("the worker is gone")
        if sampling.max_tokens == 10_000:
            try:
                await asyncio.sleep(1)
            except asyncio.CancelledError:
                self.gone = True
                raise
        return await super().generate(prompt_ids, sampling, session=session)


class ClaimsEverything(Good):
    def require(self, **wanted):
        """Whatever is wanted is there."""


class StaleCache(Good):
    async def update_weights(self, weights, version):
        self.version = version


class OldVersion(Good):
    async def update_weights(self, weights, version):
        self.seen.clear()


class TakesAnyWeights(Good):
    async def update_weights(self, weights, version):
        self.seen.clear()
        self.version = version


class GoesOnWhenClosed(Good):
    async def close(self):
        """Nothing is released."""


class ClosesOnce(Good):
    async def close(self):
        if self.closed:
            raise EngineError("closed already")
        await super().close()


class Kit(EngineKit):
    engine_class = Good

    def make_engine(self):
        return self.engine_class()

    def reference_logprobs(self, prompt_ids, token_ids, sampling):
        return np.full(len(token_ids), -1.0, dtype=np.float32)


class TestGoodKeepsTheContract(Kit):
    pass


BROKEN = {
    "starts anew": (StartsAnew, "engine/start", "started twice"),
    "a log-prob is missing": (ForgetsLogprobs, "engine/tokens", "one log-prob for each token"),
    "log-probs are not finite": (changed(logprobs=lambda g: g.logprobs - np.inf), "engine/tokens", "finite"),
    "log-probs above zero": (changed(logprobs=lambda g: g.logprobs + 2), "engine/tokens", "0 or less"),
    "no version spans": (changed(version_spans=()), "engine/tokens", "cover 0 tokens"),
    "ignores max_tokens": (sampled(lambda s: replace(s, max_tokens=9)), "engine/max-tokens", "under max_tokens=1"),
    "ignores stop tokens": (sampled(lambda s: replace(s, stop_token_ids=())), "engine/stop", "after a stop token|last"),
    "greedy is not": (SaysMoreEachTime, "engine/greedy", "two answers"),
    "greedy has log-probs": (changed(logprobs=lambda g: g.logprobs - 1), "engine/greedy", "point mass"),
    "seeds are ignored": (SaysMoreEachTime, "engine/seed", "two answers"),
    "few at once": (ServesOneAtATime, "engine/concurrency", "out of memory"),
    "answers nothing": (Lenient, "engine/empty-prompt", "DID NOT RAISE"),
    "answers too much": (Lenient, "engine/long-prompt", "DID NOT RAISE"),
    "beyond the context": (Overflows, "engine/context", ""),
    "cannot stop": (CannotStop, "engine/abort", "told to abort"),
    "aborts only what runs": (AbortsOnlyWhatRuns, "engine/abort-nothing", "no session"),
    "breaks when cancelled": (BreaksWhenCancelled, "engine/cancellation", "worker is gone"),
    "claims everything": (ClaimsEverything, "engine/capabilities", "DID NOT RAISE"),
    "log-probs of something else": (changed(logprobs=lambda g: g.logprobs * 2), "engine/logprobs", "off the reference"),
    "claims a cache": (changed(cached_tokens=0), "engine/cache", "computed the whole prompt"),
    "stale cache": (StaleCache, "engine/versions", "old weights' cache"),
    "old version": (OldVersion, "engine/versions", "after the update"),
    "takes any weights": (TakesAnyWeights, "engine/unknown-weights", "DID NOT RAISE"),
    "goes on when closed": (GoesOnWhenClosed, "engine/closed", "DID NOT RAISE"),
    "closes once": (ClosesOnce, "engine/close", "closed already"),
}


@pytest.mark.parametrize(("engine", "rule", "why"), BROKEN.values(), ids=BROKEN)
def test_a_broken_engine_fails_its_rule(told, engine, rule, why):
    loop = BlockingLoop()
    try:
        kit = type("BrokenKit", (Kit,), {"engine_class": engine})
        made = engine()
        loop.run(made.start())
        said = told(kit, rule, loop=loop, engine=made)
        assert any(part in said for part in why.split("|"))
    finally:
        loop.close()


def test_every_rule_of_engines_has_a_broken_one():
    assert {rule for _, rule, _ in BROKEN.values()} == set(rules_of(EngineKit))
