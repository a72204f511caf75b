"""Aborting, cancelling, failing, closing: every call ends, and the engine stays usable."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import numpy as np
import pytest
import torch

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason
from agentr1_engine_transformers import TransformersEngine
from agentr1_engine_transformers.lane import alike

LONG = SamplingParams(max_tokens=5000, seed=1)


@pytest.fixture
def endless(tiny):
    """A model that never stops by itself within a test."""
    return tiny("llama", max_positions=6000, eos_token_id=None)


def test_et_abort_keeps_what_was_sampled(endless, serve, reference, until_running):
    prompt = np.arange(3, 10, dtype=np.int32)

    async def run():
        async with serve(endless) as engine:
            doomed = asyncio.ensure_future(engine.generate(prompt, LONG, session="doomed"))
            other = asyncio.ensure_future(
                engine.generate(prompt, SamplingParams(max_tokens=300, seed=2), session="other")
            )
            await until_running(engine, 2)
            await engine.abort("nobody")
            assert not doomed.done()
            await engine.abort("doomed")
            return await asyncio.wait_for(doomed, 10), await asyncio.wait_for(other, 30)

    doomed, other = asyncio.run(run())
    assert doomed.finish_reason is FinishReason.ABORT
    assert 1 <= len(doomed.token_ids) < 5000
    np.testing.assert_allclose(doomed.logprobs, reference(endless, prompt, doomed), atol=1e-4)
    assert other.finish_reason is FinishReason.LENGTH
    np.testing.assert_allclose(other.logprobs, reference(endless, prompt, other), atol=1e-4)


def test_et_an_aborted_call_that_waited_returns_nothing_sampled(endless, serve, until_running):
    async def run():
        async with serve(endless, max_running=1) as engine:
            first = asyncio.ensure_future(engine.generate([3, 4], LONG, session="first"))
            await until_running(engine, 1)
            second = asyncio.ensure_future(engine.generate([3, 4], LONG, session="second"))
            await asyncio.sleep(0.01)
            await engine.abort("second")
            got = await asyncio.wait_for(second, 10)
            await engine.abort("first")
            await asyncio.wait_for(first, 10)
            return got

    generation = asyncio.run(run())
    assert (len(generation.token_ids), generation.finish_reason) == (0, FinishReason.ABORT)


def test_et_a_cancelled_call_stops_running(endless, serve):
    async def run():
        async with serve(endless) as engine:
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(engine.generate([3, 4], LONG), 0.1)
            for _ in range(500):
                if (await engine.health()).running == 0:
                    break
                await asyncio.sleep(0.01)
            assert (await engine.health()).running == 0

    asyncio.run(run())


def test_et_close_ends_pending_calls_and_is_idempotent(endless, until_running):
    async def run():
        engine = TransformersEngine.sharing(endless.train(), settings=TransformersEngine.Settings(max_running=3))
        await engine.close()
        await engine.start()
        await engine.start()
        calls = [asyncio.ensure_future(engine.generate([3, 4], LONG)) for _ in range(6)]
        await until_running(engine, 3)
        await asyncio.wait_for(engine.close(), 10)
        await engine.close()
        results = await asyncio.wait_for(asyncio.gather(*calls), 10)
        with pytest.raises(EngineError, match="not running"):
            await engine.generate([3, 4], LONG)
        with pytest.raises(EngineError, match="not running"):
            await engine.abort("s")
        return results

    results = asyncio.run(run())
    assert {g.finish_reason for g in results} == {FinishReason.ABORT}
    assert sorted(len(g.token_ids) > 0 for g in results) == [False] * 3 + [True] * 3
    assert endless.training


def test_et_an_engine_can_be_started_again_in_another_loop(model):
    engine = TransformersEngine.sharing(model)

    async def run():
        await engine.start()
        generation = await engine.generate([3, 4, 5], SamplingParams(max_tokens=5, seed=0))
        await engine.close()
        return generation.token_ids.tolist()

    assert asyncio.run(run()) == asyncio.run(run())


def test_et_a_failing_forward_fails_its_calls_and_nothing_else(endless, serve, reference, until_running):
    """A hook stands in for a device that runs out of memory."""
    prompt = np.arange(3, 20, dtype=np.int32)
    broken = {"on": False}

    def breaks(module, args, kwargs):
        if broken["on"]:
            raise torch.OutOfMemoryError("no memory left")

    endless.register_forward_pre_hook(breaks, with_kwargs=True)

    async def run():
        async with serve(endless) as engine:
            broken["on"] = True
            with pytest.raises(EngineError, match=r"no memory left[\s\S]*max_running"):
                await asyncio.wait_for(engine.generate(prompt, SamplingParams(max_tokens=5)), 10)
            broken["on"] = False
            running = asyncio.ensure_future(engine.generate(prompt, LONG))
            await until_running(engine, 1)
            broken["on"] = True
            with pytest.raises(EngineError, match="no memory left"):
                await asyncio.wait_for(running, 10)
            broken["on"] = False
            return await asyncio.wait_for(engine.generate(prompt, SamplingParams(max_tokens=5, seed=0)), 10)

    generation = asyncio.run(run())
    np.testing.assert_allclose(generation.logprobs, reference(endless, prompt, generation), atol=1e-4)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_et_weights_that_diverged_are_an_error(model, serve, temperature):
    async def run():
        async with serve(model) as engine:
            with torch.no_grad():
                model.lm_head.weight.fill_(torch.nan)
            await engine.update_weights(WeightSource("live"), 1)
            with pytest.raises(EngineError, match="not finite"):
                await engine.generate([3, 4], SamplingParams(temperature=temperature))

    asyncio.run(run())


@pytest.mark.parametrize("error", [RuntimeError("broken kernel"), OSError("lost disk")])
def test_et_a_model_that_cannot_run_fails_the_start(model, error):
    def breaks(module, args, kwargs):
        raise error

    model.register_forward_pre_hook(breaks, with_kwargs=True)

    async def run():
        engine = TransformersEngine.sharing(model)
        with pytest.raises(EngineError, match=str(error)):
            await asyncio.wait_for(engine.start(), 10)
        await engine.close()

    asyncio.run(run())


def test_et_many_calls_at_once(model, serve, prompts, reference):
    contexts = prompts(256, high=60)

    async def run():
        async with serve(model, max_running=100, max_batch_tokens=512) as engine:
            calls = [
                engine.generate(p, SamplingParams(max_tokens=3 + i % 20, seed=i, top_p=0.9 if i % 3 == 0 else 1.0))
                for i, p in enumerate(contexts)
            ]
            generations = await asyncio.wait_for(asyncio.gather(*calls), 50)
            assert (await engine.health()).running == 0
            return generations

    generations = asyncio.run(run())
    for i, (prompt, generation) in enumerate(zip(contexts, generations, strict=True)):
        assert 1 <= len(generation.token_ids) <= 3 + i % 20
        if i % 3 and i % 8 == 0:
            np.testing.assert_allclose(generation.logprobs, reference(model, prompt, generation), atol=1e-4)


def test_et_long_and_short_contexts_at_once(tiny, serve, reference):
    model = tiny("llama", max_positions=4096, eos_token_id=None)
    rng = np.random.default_rng(0)
    contexts = [rng.integers(3, 64, n).astype(np.int32) for n in (5, 30, 1500, 900, 8)]

    async def run():
        async with serve(model) as engine:
            calls = [engine.generate(p, SamplingParams(max_tokens=150, seed=i)) for i, p in enumerate(contexts)]
            return await asyncio.gather(*calls)

    for prompt, generation in zip(contexts, asyncio.run(run()), strict=True):
        assert len(generation.token_ids) == 150
        np.testing.assert_allclose(generation.logprobs, reference(model, prompt, generation), atol=1e-4)


def test_et_long_contexts_do_not_pad_short_ones():
    assert alike(5, 900)
    assert alike(1500, 4000)
    assert not alike(200, 1500)


def test_et_the_plugin_offers_the_engine_without_importing_torch():
    code = (
        "import sys; from agentr1_engine_transformers import plugin; "
        "print(plugin.agentr1_api_version, plugin.agentr1_engines(), 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    engine = "agentr1_engine_transformers.engine:TransformersEngine"
    assert done.stdout.strip() == f"1 {{'transformers': '{engine}'}} False"
