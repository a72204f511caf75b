"""What every inference engine must do. Subclass ``EngineKit`` in a test module and say how to make the engine.

The checks use only the contract, so they hold for an embedded engine and for a server alike. One engine serves all
checks of a class; each check runs on the same event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

import numpy as np
import pytest

from agentr1_core.blocking import BlockingLoop
from agentr1_core.engine import Generation, InferenceEngine, SamplingParams, WeightSource
from agentr1_core.errors import AgentR1Error, EngineError, PluginError
from agentr1_core.mdp import FinishReason, FloatArray, TokenArray, token_array
from agentr1_core.testing.rules import rule

T = TypeVar("T")
DEADLINE_S = 120.0


class EngineKit:
    """Checks of the ``InferenceEngine`` contract.

    Override ``make_engine``; ``prompt`` where the vocabulary has fewer than 16 tokens; ``reference_logprobs`` and
    ``new_weights`` where you can, since the strongest checks need them.
    """

    #: Largest difference (nats) to the reference's log-probs; engines that sample in half precision need more.
    logprob_atol = 1e-3

    def make_engine(self) -> InferenceEngine:
        """A new engine, not started."""
        raise NotImplementedError("Override make_engine() in your test class.")

    def prompt(self, variant: int = 0) -> TokenArray:
        """Different prompts for different ``variant``."""
        return token_array([3 + variant % 5, 5, 7, 11, 4, 2 + variant % 7])

    def reference_logprobs(
        self, prompt_ids: TokenArray, token_ids: TokenArray, sampling: SamplingParams
    ) -> FloatArray | None:
        """Log-probs of the sampled tokens by other means, such as one forward of the model; ``None`` for no check."""
        return None

    def new_weights(self) -> WeightSource | None:
        """Weights to update to; ``None`` where none can be made. A shared model is told that it changed."""
        return WeightSource("live")

    @pytest.fixture(scope="class")
    @classmethod
    def loop(cls) -> Iterator[BlockingLoop]:
        loop = BlockingLoop()
        yield loop
        loop.close()

    @pytest.fixture(scope="class")
    @classmethod
    def engine(cls, loop: BlockingLoop) -> Iterator[InferenceEngine]:
        engine = cls().make_engine()
        loop.run(engine.start())
        yield engine
        loop.run(engine.close())

    def _run(self, loop: BlockingLoop, work: Coroutine[Any, Any, T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(DEADLINE_S):
                return await work

        return loop.run(bounded())

    def _generate(self, loop: BlockingLoop, engine: InferenceEngine, **sampling: Any) -> Generation:
        return self._run(loop, engine.generate(self.prompt(), SamplingParams(**sampling), session="kit"))

    @rule("engine/start")
    def test_starting_twice_leaves_it_healthy(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        assert self._run(loop, engine.health()).ready, "it is not ready once started"
        self._run(loop, engine.start())
        assert self._run(loop, engine.health()).ready, "it is not ready once started twice"

    @rule("engine/tokens")
    def test_one_logprob_for_each_token(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        generation = self._generate(loop, engine, max_tokens=12)
        assert 1 <= len(generation.token_ids) <= 12, f"{len(generation.token_ids)} tokens where 1 to 12 were allowed"
        assert generation.token_ids.dtype == np.int32, "token ids are int32"
        assert generation.logprobs.shape == generation.token_ids.shape, "one log-prob for each token"
        assert np.all(np.isfinite(generation.logprobs)), "log-probs are finite"
        assert np.all(generation.logprobs <= 1e-6), "log-probs are 0 or less"
        spans = sum(span.n_tokens for span in generation.version_spans)
        assert spans == len(generation.token_ids), f"the version spans cover {spans} tokens"

    @rule("engine/max-tokens")
    def test_max_tokens_is_kept_and_said(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        generation = self._generate(loop, engine, max_tokens=1)
        assert len(generation.token_ids) == 1, f"{len(generation.token_ids)} tokens under max_tokens=1"
        assert generation.finish_reason in (FinishReason.LENGTH, FinishReason.STOP)

    @rule("engine/stop")
    def test_stop_token_ends_the_action_and_belongs_to_it(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        free = self._generate(loop, engine, max_tokens=4, temperature=0.0)
        stop = int(free.token_ids[-1])
        stopped = self._generate(loop, engine, max_tokens=32, temperature=0.0, stop_token_ids=(stop,))
        assert stopped.finish_reason is FinishReason.STOP, f"it finished by {stopped.finish_reason.value}"
        assert int(stopped.token_ids[-1]) == stop, "the stop token is the last token of the action"
        assert stop not in stopped.token_ids[:-1].tolist(), "it went on after a stop token"

    @rule("engine/greedy")
    def test_greedy_repeats_itself(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        first, second = (self._generate(loop, engine, max_tokens=8, temperature=0.0) for _ in range(2))
        assert first.token_ids.tolist() == second.token_ids.tolist(), "greedy decoding gave two answers"
        assert np.all(np.abs(first.logprobs) < 1e-6), "greedy decoding is a point mass: its log-probs are 0"

    @rule("engine/seed")
    def test_seed_repeats_itself_whatever_else_runs(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        if not engine.capabilities.seed:
            pytest.skip(f"engine '{engine.name}' takes no seeds")
        sampling = SamplingParams(max_tokens=8, seed=7)
        alone = self._run(loop, engine.generate(self.prompt(), sampling))

        async def in_company() -> list[Generation]:
            others = [engine.generate(self.prompt(i), SamplingParams(max_tokens=8)) for i in range(1, 9)]
            return await asyncio.gather(engine.generate(self.prompt(), sampling), *others)

        in_the_crowd = self._run(loop, in_company())[0]
        assert in_the_crowd.token_ids.tolist() == alone.token_ids.tolist(), "one seed gave two answers"

    @rule("engine/concurrency")
    def test_many_at_once(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        async def many() -> list[Generation]:
            calls = [
                engine.generate(self.prompt(i), SamplingParams(max_tokens=6), session=f"many/{i}") for i in range(64)
            ]
            return await asyncio.gather(*calls)

        assert all(len(generation.token_ids) >= 1 for generation in self._run(loop, many()))

    @rule("engine/empty-prompt")
    def test_empty_prompt_is_refused(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        with pytest.raises(EngineError):
            self._run(loop, engine.generate(token_array([]), SamplingParams(max_tokens=2)))

    @rule("engine/long-prompt")
    def test_prompt_longer_than_the_context_is_refused(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        limit = engine.capabilities.max_context
        if limit is None:
            pytest.skip(f"engine '{engine.name}' states no context limit")
        with pytest.raises(EngineError):
            self._run(loop, engine.generate(token_array([3] * (limit + 1)), SamplingParams(max_tokens=2)))
        assert self._run(loop, engine.health()).ready

    @rule("engine/context")
    def test_action_is_clipped_at_the_context(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        limit = engine.capabilities.max_context
        if limit is None or limit > 4096:
            pytest.skip("the context is unknown or too long to fill in a test")
        prompt = token_array([3] * (limit - 2))
        generation = self._run(loop, engine.generate(prompt, SamplingParams(max_tokens=64)))
        assert len(prompt) + len(generation.token_ids) <= limit

    @rule("engine/abort")
    def test_abort_returns_what_was_sampled(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        if not engine.capabilities.abort:
            pytest.skip(f"engine '{engine.name}' cannot abort")

        async def aborted() -> Generation:
            sampling = SamplingParams(max_tokens=10_000)
            call = asyncio.create_task(engine.generate(self.prompt(), sampling, session="abort"))
            await asyncio.sleep(0.05)
            await engine.abort("abort")
            return await call

        generation = self._run(loop, aborted())
        n_tokens = len(generation.token_ids)
        assert n_tokens == len(generation.logprobs), "one log-prob for each token, also after an abort"
        # A stop token or the context may have come first.
        whole = generation.finish_reason is FinishReason.ABORT or n_tokens < 10_000
        assert whole, "it went on to the last token although it was told to abort"
        assert self._run(loop, engine.health()).ready, "it is not ready after an abort"

    @rule("engine/abort-nothing")
    def test_aborting_what_does_not_run_is_harmless(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        self._run(loop, engine.abort("never heard of"))

    @rule("engine/cancellation")
    def test_cancelled_caller_leaves_the_engine_usable(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        async def cancelled() -> None:
            call = asyncio.create_task(engine.generate(self.prompt(), SamplingParams(max_tokens=10_000)))
            await asyncio.sleep(0.02)
            call.cancel()
            await asyncio.wait({call})

        self._run(loop, cancelled())
        assert len(self._generate(loop, engine, max_tokens=2).token_ids) >= 1

    @rule("engine/capabilities")
    def test_missing_capability_is_an_error_with_the_name(self, engine: InferenceEngine) -> None:
        with pytest.raises(PluginError, match=engine.name):
            engine.require(weight_sync="carrier-pigeon")

    @rule("engine/logprobs")
    @pytest.mark.parametrize("temperature", [1.0, 0.6])
    def test_logprobs_are_those_of_the_reference(
        self, loop: BlockingLoop, engine: InferenceEngine, temperature: float
    ) -> None:
        sampling = SamplingParams(max_tokens=12, temperature=temperature)
        generation = self._run(loop, engine.generate(self.prompt(), sampling))
        expected = self.reference_logprobs(self.prompt(), generation.token_ids, sampling)
        if expected is None:
            pytest.skip("no reference is given")
        gap = float(np.max(np.abs(expected - generation.logprobs)))
        assert gap <= self.logprob_atol, f"log-probs are {gap:.3g} nats off the reference's"

    @rule("engine/cache")
    def test_a_cached_prefix_is_reported_and_changes_nothing(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        if not engine.capabilities.prefix_cache:
            pytest.skip(f"engine '{engine.name}' has no prefix cache")
        prompt = token_array(np.tile(self.prompt(), 12))
        sampling = SamplingParams(max_tokens=4)
        first = self._run(loop, engine.generate(prompt, sampling, session="cache"))
        longer = token_array(np.concatenate([prompt, first.token_ids, self.prompt()]))
        second = self._run(loop, engine.generate(longer, sampling, session="cache"))
        assert second.cached_tokens > 0, "it claims a prefix cache and computed the whole prompt of the second turn"
        assert second.cached_tokens <= len(longer), "more tokens are cached than the prompt has"
        expected = self.reference_logprobs(longer, second.token_ids, sampling)
        if expected is not None:
            gap = float(np.max(np.abs(expected - second.logprobs)))
            assert gap <= self.logprob_atol, f"after a cached prefix log-probs are {gap:.3g} nats off the reference's"

    @rule("engine/versions")
    def test_new_weights_leave_nothing_old(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        source = self.new_weights()
        if source is None or source.kind not in engine.capabilities.weight_sync:
            pytest.skip("no weights to update to")
        prompt, sampling = token_array(np.tile(self.prompt(), 12)), SamplingParams(max_tokens=4)
        self._run(loop, engine.generate(prompt, sampling, session="versions"))
        version = self._run(loop, engine.health()).weight_version + 7
        self._run(loop, engine.update_weights(source, version))
        after = self._run(loop, engine.generate(prompt, sampling, session="versions"))
        assert {span.version for span in after.version_spans} == {version}, (
            f"after the update to version {version} it sampled with {[span.version for span in after.version_spans]}"
        )
        assert after.cached_tokens == 0, "the old weights' cache was used under the new ones"
        assert self._run(loop, engine.health()).weight_version == version, "health() tells another version"

    @rule("engine/unknown-weights")
    def test_weights_it_cannot_take_are_refused(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        with pytest.raises(AgentR1Error):
            self._run(loop, engine.update_weights(WeightSource("carrier-pigeon"), 1))
        assert len(self._generate(loop, engine, max_tokens=2).token_ids) >= 1, "it no longer generates afterwards"

    @rule("engine/closed")
    def test_a_closed_engine_says_so(self, loop: BlockingLoop) -> None:
        engine = self.make_engine()
        self._run(loop, engine.start())
        self._run(loop, engine.close())
        with pytest.raises(EngineError):
            self._run(loop, engine.generate(self.prompt(), SamplingParams(max_tokens=2)))
        assert not self._run(loop, engine.health()).ready, "it says that it is ready after it was closed"

    @rule("engine/close")
    def test_closing_twice_is_harmless(self, loop: BlockingLoop) -> None:
        engine = self.make_engine()
        self._run(loop, engine.start())
        self._run(loop, engine.close())
        self._run(loop, engine.close())
