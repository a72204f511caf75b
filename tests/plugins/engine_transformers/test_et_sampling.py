"""Truncation keeps what it should, and noise belongs to the request alone."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_core.engine import SamplingParams
from agentr1_engine_transformers.sampling import truncate


def column(value, dtype=torch.float32):
    return torch.tensor([[value]], dtype=dtype)


def cut(probs, top_k=0, top_p=1.0, min_p=0.0):
    row = torch.tensor([probs])
    return truncate(row, column(top_k, torch.int64), column(top_p), column(min_p))[0].tolist()


def test_et_top_k_keeps_the_k_likeliest():
    assert cut([0.1, 0.4, 0.2, 0.3], top_k=2) == pytest.approx([0, 4 / 7, 0, 3 / 7])


def test_et_top_p_keeps_the_token_that_crosses_the_mass():
    assert cut([0.5, 0.25, 0.125, 0.125], top_p=0.6) == pytest.approx([2 / 3, 1 / 3, 0, 0])


def test_et_top_p_counts_the_mass_of_what_top_k_left():
    # Of 0.4, 0.3 and 0.2 the first two hold 7/9 of the mass, enough for 0.75; without top-k 0.7 would not be.
    assert cut([0.4, 0.3, 0.2, 0.1], top_k=3, top_p=0.75) == pytest.approx([4 / 7, 3 / 7, 0, 0])


def test_et_min_p_is_relative_to_the_likeliest_token():
    assert cut([0.5, 0.3, 0.15, 0.05], min_p=0.5) == pytest.approx([0.625, 0.375, 0, 0])


@given(
    weights=st.lists(st.floats(0.001, 1), min_size=1, max_size=30),
    top_k=st.integers(0, 40),
    top_p=st.floats(0.01, 1),
    min_p=st.floats(0, 0.99),
)
@settings(max_examples=200, deadline=None)
def test_et_truncation_gives_a_distribution_with_the_likeliest_token(weights, top_k, top_p, min_p):
    probs = (np.array(weights) / np.sum(weights)).astype(np.float32).tolist()
    kept = cut(probs, top_k, top_p, min_p)
    assert sum(kept) == pytest.approx(1, abs=1e-5)
    assert kept[int(np.argmax(probs))] > 0
    assert min(kept) >= 0
    if top_k:
        assert sum(p > 0 for p in kept) <= top_k
    ratios = [new / old for new, old in zip(kept, probs, strict=True) if new > 0]
    assert max(ratios) == pytest.approx(min(ratios), rel=1e-3)


def test_et_same_seed_gives_the_same_tokens_alone_and_among_others(model, serve, prompts):
    contexts = prompts(16)
    sampling = SamplingParams(max_tokens=24, seed=7, temperature=1.2)
    others = [SamplingParams(max_tokens=24, seed=None if i % 2 else i, top_k=i) for i in range(16)]

    async def run():
        async with serve(model) as engine:
            alone = await engine.generate(contexts[0], sampling)
            crowd = await asyncio.gather(
                *(engine.generate(p, other) for p, other in zip(contexts[1:], others[1:], strict=True)),
                engine.generate(contexts[0], sampling),
                engine.generate(contexts[0], SamplingParams(max_tokens=24, seed=8, temperature=1.2)),
            )
            return alone, crowd

    alone, crowd = asyncio.run(run())
    assert alone.token_ids.tolist() == crowd[15].token_ids.tolist()
    assert alone.token_ids.tolist() != crowd[16].token_ids.tolist()
    np.testing.assert_allclose(alone.logprobs, crowd[15].logprobs, atol=1e-5)


def test_et_calls_without_a_seed_differ(model, serve, prompts):
    prompt = prompts(1)[0]

    async def run():
        async with serve(model) as engine:
            return await asyncio.gather(*(engine.generate(prompt, SamplingParams(max_tokens=20)) for _ in range(6)))

    assert len({tuple(g.token_ids.tolist()) for g in asyncio.run(run())}) > 1
