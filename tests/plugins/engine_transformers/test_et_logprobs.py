"""The log-probs are those of the distribution that was sampled from, whatever the batching."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

from agentr1_core.engine import SamplingParams
from agentr1_engine_transformers.noise import NoiseStream
from agentr1_engine_transformers.sampling import SamplingPlan, sample

SAMPLINGS = {
    "plain": {},
    "warm": {"temperature": 1.7},
    "cool": {"temperature": 0.4},
    "top_k": {"top_k": 5},
    "top_p": {"top_p": 0.7},
    "min_p": {"min_p": 0.2},
    "all": {"temperature": 0.8, "top_k": 12, "top_p": 0.9, "min_p": 0.05},
}


async def generate_all(engine, prompts, samplings):
    calls = [engine.generate(prompt, sampling) for prompt, sampling in zip(prompts, samplings, strict=True)]
    return await asyncio.gather(*calls)


@pytest.mark.parametrize("kind", ["qwen2", "llama", "gpt2", "gemma3", "mamba"])
def test_et_logprobs_equal_a_teacher_forced_forward(tiny, serve, prompts, reference, kind):
    model = tiny(kind)
    contexts = prompts(21)
    variants = list(SAMPLINGS.values())
    samplings = [
        SamplingParams(max_tokens=4 + 3 * (i % 5), seed=i, **variants[i % len(variants)]) for i in range(len(contexts))
    ]

    async def run():
        async with serve(model) as engine:
            assert engine.capabilities.prefix_cache == (kind != "mamba")
            health = await engine.health()
            return health, await generate_all(engine, contexts, samplings)

    health, generations = asyncio.run(run())
    assert ("recomputing" in health.detail) == (kind == "mamba")
    for prompt, sampling, generation in zip(contexts, samplings, generations, strict=True):
        assert 1 <= len(generation.token_ids) <= sampling.max_tokens
        expected = reference(model, prompt, generation, sampling)
        np.testing.assert_allclose(generation.logprobs, expected, atol=1e-4)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_et_both_attention_implementations_are_right(tiny, serve, prompts, reference, attention):
    model = tiny("llama", attn_implementation=attention)
    contexts = prompts(8)

    async def run():
        async with serve(model) as engine:
            return await generate_all(engine, contexts, [SamplingParams(max_tokens=12, seed=1)] * 8)

    for prompt, generation in zip(contexts, asyncio.run(run()), strict=True):
        np.testing.assert_allclose(generation.logprobs, reference(model, prompt, generation), atol=1e-4)


def test_et_greedy_takes_the_likeliest_token_with_logprob_zero(model, serve, prompts):
    prompt = prompts(1)[0]

    async def run():
        async with serve(model) as engine:
            return await engine.generate(prompt, SamplingParams(max_tokens=8, temperature=0))

    generation = asyncio.run(run())
    ids = torch.from_numpy(np.concatenate([prompt, generation.token_ids])).long().unsqueeze(0)
    with torch.no_grad():
        likeliest = model(ids).logits[0, len(prompt) - 1 : -1].argmax(-1)
    assert likeliest.tolist() == generation.token_ids.tolist()
    assert generation.logprobs.tolist() == [0.0] * len(generation.token_ids)


@pytest.mark.parametrize("name", ["plain", "warm", "top_p", "all"])
def test_et_tokens_are_distributed_as_they_should_be(tiny, filtered_logits, name):
    """Pearson's chi-square over 4000 first tokens; 5 sigma above its mean would be a wrong distribution."""
    sampling = SamplingParams(**SAMPLINGS[name])
    model = tiny("llama", vocab_size=12)
    with torch.no_grad():
        logits = model(torch.tensor([[3, 4, 5]])).logits[0, -1:]
    n = 4000
    plan = SamplingPlan.of([sampling] * n, [NoiseStream(seed) for seed in range(n)], logits.device)
    tokens, _ = sample(logits.expand(n, -1), plan)
    expected = torch.softmax(filtered_logits(logits, sampling), -1)[0].double().numpy() * n
    counts = np.bincount(tokens.numpy(), minlength=12)
    assert counts[expected == 0].sum() == 0
    support = expected > 0
    chi_square = ((counts - expected)[support] ** 2 / expected[support]).sum()
    freedom = support.sum() - 1
    assert chi_square < freedom + 5 * np.sqrt(2 * freedom)
