"""Keys and values of former turns are reused exactly where the tokens are equal, and change nothing else."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch

from agentr1_core.engine import SamplingParams
from agentr1_engine_transformers.prefix_store import PrefixStore


def longer(prompt, generation, extra):
    return np.concatenate([prompt, generation.token_ids, np.array(extra, np.int32)])


@pytest.mark.parametrize("kind", ["qwen2", "gpt2", "gemma3"])
def test_et_a_continued_context_reuses_all_but_the_last_sampled_token(tiny, serve, prompts, reference, kind):
    model = tiny(kind)

    async def turns(engine):
        """Six episodes of three turns at once, with new observations of different lengths."""

        async def episode(i, prompt):
            out = []
            for turn in range(3):
                sampling = SamplingParams(max_tokens=5 + i, seed=10 * i + turn)
                generation = await engine.generate(prompt, sampling, session=f"e{i}")
                out.append((prompt, generation))
                prompt = longer(prompt, generation, range(4, 6 + i + turn))
            return out

        return await asyncio.gather(*(episode(i, p) for i, p in enumerate(prompts(6))))

    async def run():
        async with serve(model) as engine:
            reused = await turns(engine)
        async with serve(model, prefix_cache=False) as engine:
            return reused, await turns(engine)

    reused, plain = asyncio.run(run())
    for episode, plain_episode in zip(reused, plain, strict=True):
        before = None
        for (prompt, generation), (_, other) in zip(episode, plain_episode, strict=True):
            assert generation.cached_tokens == (0 if before is None else before)
            assert other.cached_tokens == 0
            assert generation.token_ids.tolist() == other.token_ids.tolist()
            np.testing.assert_allclose(generation.logprobs, other.logprobs, atol=1e-4)
            np.testing.assert_allclose(generation.logprobs, reference(model, prompt, generation), atol=1e-4)
            before = len(prompt) + len(generation.token_ids) - 1


def test_et_a_rewritten_context_reuses_only_its_common_beginning(model, serve, reference):
    first = np.arange(3, 33, dtype=np.int32)
    second = first.copy()
    second[20] = 50

    async def run():
        async with serve(model) as engine:
            await engine.generate(first, SamplingParams(max_tokens=4, seed=0), session="a")
            return await engine.generate(second, SamplingParams(max_tokens=8, seed=1), session="a")

    generation = asyncio.run(run())
    assert generation.cached_tokens == 20
    np.testing.assert_allclose(generation.logprobs, reference(model, second, generation), atol=1e-4)


def test_et_equal_prompts_are_computed_once(model, serve, reference):
    prompt = np.arange(3, 43, dtype=np.int32)

    async def run():
        async with serve(model) as engine:
            samplings = [SamplingParams(max_tokens=6, seed=i) for i in range(8)]
            group = await asyncio.gather(*(engine.generate(prompt, s, session=f"g{s.seed}") for s in samplings))
            later = await engine.generate(prompt, SamplingParams(max_tokens=6, seed=3), session="another")
            return group, later

    group, later = asyncio.run(run())
    assert sum(len(prompt) - g.cached_tokens for g in group) < 3 * len(prompt)
    assert later.cached_tokens == len(prompt) - 1
    assert later.token_ids.tolist() == group[3].token_ids.tolist()
    for generation in [*group, later]:
        np.testing.assert_allclose(generation.logprobs, reference(model, prompt, generation), atol=1e-4)


def block(n):
    return (torch.zeros(1, 1, n, 1),)


def test_et_store_drops_the_least_recently_used_beyond_its_budget():
    store = PrefixStore(max_tokens=100)
    contexts = {name: np.full(40, i, np.int32) for i, name in enumerate("abc")}
    store.put("a", contexts["a"], block(40))
    store.put("b", contexts["b"], block(40))
    assert store.longest("a", contexts["a"])[0] == 39
    store.put("c", contexts["c"], block(40))
    assert store.n_tokens == 80
    assert store.longest("b", contexts["b"]) is None
    assert store.longest("a", contexts["a"])[0] == 39
    store.put("huge", np.zeros(101, np.int32), block(101))
    assert store.n_tokens == 80
    store.clear()
    assert (len(store), store.n_tokens) == (0, 0)


def test_et_store_keeps_one_context_for_each_session():
    store = PrefixStore(max_tokens=100)
    store.put("a", np.arange(30, dtype=np.int32), block(30))
    store.put("a", np.arange(50, dtype=np.int32), block(50))
    assert (len(store), store.n_tokens) == (1, 50)
    assert store.longest("a", np.arange(60, dtype=np.int32))[0] == 50


def test_et_the_prefix_cache_keeps_to_its_memory(model, serve):
    """A cache that can hold three tokens holds no context of thirty, so the next turn computes everything."""
    config = model.config
    head_dim = config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * config.num_key_value_heads * head_dim * 4
    prompt = np.arange(3, 33, dtype=np.int32)

    async def run(n_bytes):
        async with serve(model, prefix_cache_bytes=n_bytes) as engine:
            first = await engine.generate(prompt, SamplingParams(max_tokens=4, seed=0), session="a")
            second = await engine.generate(longer(prompt, first, [5]), SamplingParams(max_tokens=4), session="a")
            return second.cached_tokens, len(prompt) + len(first.token_ids) - 1

    assert asyncio.run(run(3 * per_token))[0] == 0
    cached, everything = asyncio.run(run(100 * per_token))
    assert cached == everything
