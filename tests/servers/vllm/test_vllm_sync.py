"""Adapters that are sent as adapters, and weights that are broadcast from memory: log-probs say whose they are."""

import asyncio

import numpy as np
import pytest
from safetensors.torch import load_file

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import EngineError


def gap(found, expected):
    return float(np.abs(found - expected).max())


def tensors_of(folder):
    return load_file(folder / "model.safetensors")


def test_an_adapter_samples_like_the_model_it_is_merged_into(engine, run, other, adapters, prompts, reference):
    prompt = prompts(1, 100, 101)[0]
    sampling = SamplingParams(max_tokens=24, seed=5)
    run(engine.update_weights(WeightSource("file", path=other), 1))
    for version, (adapter, merged) in enumerate(adapters, start=2):
        run(engine.update_weights(WeightSource("lora", path=adapter), version))
        first, again = run(engine.generate(prompt, sampling)), run(engine.generate(prompt, sampling))
        assert (first.cached_tokens, again.cached_tokens) == (0, 96)
        assert again.token_ids.tolist() == first.token_ids.tolist()
        assert [span.version for span in first.version_spans] == [version]
        for found in (first, again):
            assert gap(found.logprobs, reference(merged, prompt, found.token_ids)) < 1e-4
            assert gap(found.logprobs, reference(other, prompt, found.token_ids)) > 0.1
    run(engine.update_weights(WeightSource("file", path=other), 9))  # whole weights end the adapter
    found = run(engine.generate(prompt, sampling))
    assert gap(found.logprobs, reference(other, prompt, found.token_ids)) < 1e-4


def test_an_action_continues_across_a_new_adapter(engine, run, other, adapters, prompts, reference, waits_s):
    (first, first_merged), (second, second_merged) = adapters
    prompt = prompts(1, 40, 41)[0]
    run(engine.update_weights(WeightSource("file", path=other), 0))

    async def update_on_the_way(seed, wait_s):
        await engine.update_weights(WeightSource("lora", path=first), 1)
        call = asyncio.create_task(engine.generate(prompt, SamplingParams(max_tokens=1900, seed=seed)))
        await asyncio.sleep(wait_s)
        await engine.update_weights(WeightSource("lora", path=second), 2)
        return await call

    tries = (run(update_on_the_way(seed, wait_s)) for seed, wait_s in enumerate(waits_s))
    found = next(found for found in tries if len(found.version_spans) == 2)
    cut = found.version_spans[0].n_tokens
    old, new = (reference(merged, prompt, found.token_ids) for merged in (first_merged, second_merged))
    assert gap(found.logprobs[:cut], old[:cut]) < 1e-4
    assert gap(found.logprobs[cut:], new[cut:]) < 1e-4
    assert gap(found.logprobs[cut:], old[cut:]) > 0.1


def test_an_adapter_that_is_too_large_is_refused_and_the_engine_recovers(
    engine, run, base, other, prompts, reference, tmp_path
):
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(other)
    get_peft_model(model, LoraConfig(r=16, target_modules=["q_proj"])).save_pretrained(tmp_path)
    with pytest.raises(EngineError, match="rank 16"):
        run(engine.update_weights(WeightSource("lora", path=tmp_path), 3))
    run(engine.update_weights(WeightSource("file", path=base), 4))
    found = run(engine.generate(prompts(1)[0], SamplingParams(max_tokens=8)))
    assert gap(found.logprobs, reference(base, prompts(1)[0], found.token_ids)) < 1e-4


def test_broadcast_weights_are_the_trainers(engine, run, base, other, prompts, reference):
    prompt = prompts(1, 100, 101)[0]
    sampling = SamplingParams(max_tokens=24, seed=5)
    for version, folder, wrong in ((1, other, base), (2, base, other), (3, other, base)):
        sent = tensors_of(folder)
        run(engine.update_weights(WeightSource("state_dict", tensors=sent), version))
        for tensor in sent.values():
            tensor.zero_()  # the trainer goes on; what was sent stays
        found = run(engine.generate(prompt, sampling))
        assert found.cached_tokens == 0
        assert [span.version for span in found.version_spans] == [version]
        assert gap(found.logprobs, reference(folder, prompt, found.token_ids)) < 1e-4
        assert gap(found.logprobs, reference(wrong, prompt, found.token_ids)) > 0.1


def test_broadcast_weights_of_another_shape_are_refused_and_the_engine_recovers(
    engine, run, base, other, prompts, reference
):
    sent = tensors_of(other)
    sent["model.norm.weight"] = sent["model.norm.weight"][:64].clone()
    with pytest.raises(EngineError, match="collective_rpc"):
        run(engine.update_weights(WeightSource("state_dict", tensors=sent), 3))
    run(engine.update_weights(WeightSource("state_dict", tensors=tensors_of(base)), 4))
    found = run(engine.generate(prompts(1)[0], SamplingParams(max_tokens=8)))
    assert gap(found.logprobs, reference(base, prompts(1)[0], found.token_ids)) < 1e-4
