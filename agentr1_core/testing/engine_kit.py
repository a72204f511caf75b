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
from agentr1_core.engine import Generation, InferenceEngine, SamplingParams
from agentr1_core.errors import EngineError, PluginError
from agentr1_core.mdp import FinishReason, TokenArray, token_array

T = TypeVar("T")
DEADLINE_S = 120.0


class EngineKit:
    """Checks of the ``InferenceEngine`` contract.

    Override ``make_engine``; ``prompt`` where the vocabulary has fewer than 16 tokens.
    """

    def make_engine(self) -> InferenceEngine:
        """A new engine, not started."""
        raise NotImplementedError("Override make_engine() in your test class.")

    def prompt(self, variant: int = 0) -> TokenArray:
        """Different prompts for different ``variant``."""
        return token_array([3 + variant % 5, 5, 7, 11, 4, 2 + variant % 7])

    @pytest.fixture(scope="class")
    def loop(self) -> Iterator[BlockingLoop]:
        loop = BlockingLoop()
        yield loop
        loop.close()

    @pytest.fixture(scope="class")
    def engine(self, loop: BlockingLoop) -> Iterator[InferenceEngine]:
        engine = self.make_engine()
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

    def test_it_is_healthy_once_started(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        assert self._run(loop, engine.health()).ready

    def test_starting_twice_is_harmless(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        self._run(loop, engine.start())
        assert self._run(loop, engine.health()).ready

    def test_one_logprob_for_each_token(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        generation = self._generate(loop, engine, max_tokens=12)
        assert 1 <= len(generation.token_ids) <= 12
        assert generation.token_ids.dtype == np.int32
        assert generation.logprobs.shape == generation.token_ids.shape
        assert np.all(np.isfinite(generation.logprobs))
        assert np.all(generation.logprobs <= 1e-6)
        assert sum(span.n_tokens for span in generation.version_spans) == len(generation.token_ids)

    def test_max_tokens_is_kept_and_said(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        generation = self._generate(loop, engine, max_tokens=1)
        assert len(generation.token_ids) == 1
        assert generation.finish_reason in (FinishReason.LENGTH, FinishReason.STOP)

    def test_stop_token_ends_the_action_and_belongs_to_it(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        free = self._generate(loop, engine, max_tokens=4, temperature=0.0)
        stop = int(free.token_ids[-1])
        stopped = self._generate(loop, engine, max_tokens=32, temperature=0.0, stop_token_ids=(stop,))
        assert stopped.finish_reason is FinishReason.STOP
        assert int(stopped.token_ids[-1]) == stop
        assert stop not in stopped.token_ids[:-1].tolist()

    def test_greedy_repeats_itself(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        first, second = (self._generate(loop, engine, max_tokens=8, temperature=0.0) for _ in range(2))
        assert first.token_ids.tolist() == second.token_ids.tolist()

    def test_seed_repeats_itself_whatever_else_runs(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        if not engine.capabilities.seed:
            pytest.skip(f"engine '{engine.name}' takes no seeds")
        sampling = SamplingParams(max_tokens=8, seed=7)
        alone = self._run(loop, engine.generate(self.prompt(), sampling))

        async def in_company() -> list[Generation]:
            others = [engine.generate(self.prompt(i), SamplingParams(max_tokens=8)) for i in range(1, 9)]
            return await asyncio.gather(engine.generate(self.prompt(), sampling), *others)

        assert self._run(loop, in_company())[0].token_ids.tolist() == alone.token_ids.tolist()

    def test_many_at_once(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        async def many() -> list[Generation]:
            calls = [
                engine.generate(self.prompt(i), SamplingParams(max_tokens=6), session=f"many/{i}") for i in range(64)
            ]
            return await asyncio.gather(*calls)

        assert all(len(generation.token_ids) >= 1 for generation in self._run(loop, many()))

    def test_empty_prompt_is_refused(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        with pytest.raises(EngineError):
            self._run(loop, engine.generate(token_array([]), SamplingParams(max_tokens=2)))

    def test_prompt_longer_than_the_context_is_refused(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        limit = engine.capabilities.max_context
        if limit is None:
            pytest.skip(f"engine '{engine.name}' states no context limit")
        with pytest.raises(EngineError):
            self._run(loop, engine.generate(token_array([3] * (limit + 1)), SamplingParams(max_tokens=2)))
        assert self._run(loop, engine.health()).ready

    def test_action_is_clipped_at_the_context(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        limit = engine.capabilities.max_context
        if limit is None or limit > 4096:
            pytest.skip("the context is unknown or too long to fill in a test")
        prompt = token_array([3] * (limit - 2))
        generation = self._run(loop, engine.generate(prompt, SamplingParams(max_tokens=64)))
        assert len(prompt) + len(generation.token_ids) <= limit

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
        assert len(generation.token_ids) == len(generation.logprobs)
        # A stop token or the context may have come first; nothing else may have.
        assert generation.finish_reason in FinishReason
        assert self._run(loop, engine.health()).ready

    def test_aborting_what_does_not_run_is_harmless(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        self._run(loop, engine.abort("never heard of"))

    def test_cancelled_caller_leaves_the_engine_usable(self, loop: BlockingLoop, engine: InferenceEngine) -> None:
        async def cancelled() -> None:
            call = asyncio.create_task(engine.generate(self.prompt(), SamplingParams(max_tokens=10_000)))
            await asyncio.sleep(0.02)
            call.cancel()
            await asyncio.wait({call})

        self._run(loop, cancelled())
        assert len(self._generate(loop, engine, max_tokens=2).token_ids) >= 1

    def test_missing_capability_is_an_error_with_the_name(self, engine: InferenceEngine) -> None:
        with pytest.raises(PluginError, match=engine.name):
            engine.require(weight_sync="carrier-pigeon")

    def test_closing_twice_is_harmless(self, loop: BlockingLoop) -> None:
        engine = self.make_engine()
        self._run(loop, engine.start())
        self._run(loop, engine.close())
        self._run(loop, engine.close())
