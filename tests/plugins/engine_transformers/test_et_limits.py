"""Where an action ends, and which prompts are refused."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from agentr1_core.engine import SamplingParams
from agentr1_core.errors import ConfigError, EngineError
from agentr1_core.mdp import FinishReason
from agentr1_engine_transformers import TransformersEngine


def test_et_stop_tokens_end_the_action_and_are_kept(model, serve, prompts):
    stops = (10, 11, 12, 13)

    async def run():
        async with serve(model, eos_token_ids=(20, 21)) as engine:
            sampling = [SamplingParams(max_tokens=60, seed=i, stop_token_ids=stops) for i in range(24)]
            calls = [engine.generate(p, s) for p, s in zip(prompts(24), sampling, strict=True)]
            return await asyncio.gather(*calls)

    generations = asyncio.run(run())
    enders = {*stops, 2, 20, 21}  # 2 is the model's own end-of-sequence id
    for generation in generations:
        *before, last = generation.token_ids.tolist()
        assert not enders.intersection(before)
        assert (generation.finish_reason is FinishReason.STOP) == (last in enders)
    assert sum(g.finish_reason is FinishReason.STOP for g in generations) > 12


def test_et_max_tokens_and_spans(tiny, serve, prompts):
    model = tiny("llama", eos_token_id=None)

    async def run():
        async with serve(model) as engine:
            lengths = [1, 2, 5]
            calls = [engine.generate(prompts(1)[0], SamplingParams(max_tokens=n, seed=11)) for n in lengths]
            return await asyncio.gather(*calls)

    one, two, five = asyncio.run(run())
    assert [len(g.token_ids) for g in (one, two, five)] == [1, 2, 5]
    assert five.token_ids[:2].tolist() == two.token_ids.tolist()
    assert five.finish_reason is FinishReason.LENGTH
    assert [(s.n_tokens, s.version) for s in five.version_spans] == [(5, 0)]
    assert five.token_ids.dtype == np.int32
    assert five.logprobs.dtype == np.float32
    assert set(five.timings) == {"queued", "prefill", "decode"}


def test_et_context_clips_the_action(tiny, serve):
    model = tiny("gpt2", max_positions=16, eos_token_id=None)

    async def run():
        async with serve(model) as engine:
            assert engine.capabilities.max_context == 16
            return await engine.generate(np.full(12, 5, np.int32), SamplingParams(max_tokens=99, seed=0))

    generation = asyncio.run(run())
    assert len(generation.token_ids) == 4
    assert generation.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(
    ("prompt", "words"),
    [([], "empty"), ([5] * 20, "no room in a context of 20"), ([5, 64], "token ids"), ([-1], "token ids")],
)
def test_et_impossible_prompts_are_refused(model, serve, prompt, words):
    async def run():
        async with serve(model, max_context=20) as engine:
            with pytest.raises(EngineError, match=words):
                await engine.generate(np.array(prompt, np.int32), SamplingParams())

    asyncio.run(run())


def test_et_needs_a_model():
    with pytest.raises(ConfigError, match=r"Set `model`"):
        TransformersEngine()


def test_et_unknown_settings_are_errors():
    with pytest.raises(ValueError, match="max_runing"):
        TransformersEngine.Settings(model="m", max_runing=3)


def test_et_a_model_that_cannot_be_loaded_says_so(tmp_path):
    async def run():
        engine = TransformersEngine(TransformersEngine.Settings(model=str(tmp_path / "nothing")))
        with pytest.raises(EngineError, match=r"could not load model[\s\S]*Check `model`"):
            await engine.start()
        assert not (await engine.health()).ready
        await engine.close()

    asyncio.run(run())
