"""Tokens and log-probs are exactly those of the weights the engine says, also while weights change."""

import asyncio

import numpy as np
import pytest

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason, token_array
from agentr1_engine_vllm import VLLMEngine

SAMPLINGS = [
    {},
    {"temperature": 1.7},
    {"temperature": 0.5},
    {"top_k": 20},
    {"top_p": 0.8},
    {"min_p": 0.1},
    {"temperature": 0.8, "top_k": 30, "top_p": 0.9},
]


def close(found, expected):
    np.testing.assert_allclose(found, expected, atol=1e-4)


def largest_gap(found, expected):
    return float(np.abs(found - expected).max())


def test_logprobs_are_those_of_the_distribution_sampled_from(engine, run, base, prompts, reference):
    contexts = prompts(28)
    samplings = [SamplingParams(max_tokens=4 + i, seed=i, **SAMPLINGS[i % 7]) for i in range(28)]

    async def all_at_once():
        return await asyncio.gather(*(engine.generate(p, s) for p, s in zip(contexts, samplings, strict=True)))

    for prompt, sampling, found in zip(contexts, samplings, run(all_at_once()), strict=True):
        close(found.logprobs, reference(base, prompt, found.token_ids, sampling))
        assert [span.version for span in found.version_spans] == [0]


def test_64_episodes_reuse_their_prefixes_as_far_as_whole_blocks_go(engine, run, base, prompts, reference):
    async def episode(number, prompt):
        played = []
        for turn in range(3):
            sampling = SamplingParams(max_tokens=12, seed=turn)
            found = await engine.generate(prompt, sampling, session=f"episode/{number}")
            played.append((prompt, found))
            told = np.arange(20, 50, dtype=np.int32)
            prompt = np.concatenate([prompt, found.token_ids, told])
        return played

    async def all_at_once():
        return await asyncio.gather(*(episode(i, p) for i, p in enumerate(prompts(64, seed=1))))

    for played in run(all_at_once()):
        known = 0
        for prompt, found in played:
            assert found.cached_tokens >= known // 32 * 32
            # The last sampled token's keys and values are never computed.
            known = len(prompt) + len(found.token_ids) - 1
        close(found.logprobs, reference(base, prompt, found.token_ids))


def test_seeds_hold_for_prompts_that_are_computed_in_parts(engine, run, prompts):
    """Together the prompts are longer than what vLLM computes in one step."""
    contexts = prompts(24, 200, 400, seed=2)

    async def sampled(number):
        return (await engine.generate(contexts[number], SamplingParams(max_tokens=8, seed=number))).token_ids.tolist()

    async def all_at_once():
        return await asyncio.gather(*(sampled(number) for number in range(24)))

    together = run(all_at_once())
    assert [run(sampled(number)) for number in (0, 12, 23)] == [together[number] for number in (0, 12, 23)]


def test_after_an_update_nothing_old_is_left(engine, run, base, other, prompts, reference):
    prompt = prompts(1, 100, 101)[0]
    sampling = SamplingParams(max_tokens=24, seed=5)
    before = run(engine.generate(prompt, sampling))
    run(engine.update_weights(WeightSource("file", path=other), 7))
    after = run(engine.generate(prompt, sampling))
    assert after.cached_tokens == 0
    assert [span.version for span in after.version_spans] == [7]
    close(before.logprobs, reference(base, prompt, before.token_ids))
    close(after.logprobs, reference(other, prompt, after.token_ids))
    assert largest_gap(after.logprobs, reference(base, prompt, after.token_ids)) > 0.1
    assert run(engine.health()).weight_version == 7


def test_an_action_continues_across_an_update_and_says_where(engine, run, base, other, prompts, reference, waits_s):
    prompt = prompts(1, 40, 41)[0]

    async def update_on_the_way(seed, wait_s):
        await engine.update_weights(WeightSource("file", path=base), 0)
        sampling = SamplingParams(max_tokens=1900, seed=seed)
        call = asyncio.create_task(engine.generate(prompt, sampling, session="spans"))
        await asyncio.sleep(wait_s)
        await engine.update_weights(WeightSource("file", path=other), 1)
        return await call

    tries = (run(update_on_the_way(seed, wait_s)) for seed, wait_s in enumerate(waits_s))
    found = next(found for found in tries if len(found.version_spans) == 2)
    assert [span.version for span in found.version_spans] == [0, 1]
    cut = found.version_spans[0].n_tokens
    assert 0 < cut < len(found.token_ids)
    old, new = reference(base, prompt, found.token_ids), reference(other, prompt, found.token_ids)
    close(found.logprobs[:cut], old[:cut])
    close(found.logprobs[cut:], new[cut:])
    assert largest_gap(found.logprobs[cut:], old[cut:]) > 0.1


def test_an_action_can_finish_before_an_update_instead(engine, run, address, base, other, prompts, monkeypatch):
    url, token = address
    monkeypatch.setenv("AGENTR1_VLLM_TOKEN", token)
    patient = VLLMEngine(VLLMEngine.Settings(urls=(url,), on_update="finish"))

    async def update_on_the_way():
        await patient.start()
        try:
            call = asyncio.create_task(patient.generate(prompts(1)[0], SamplingParams(max_tokens=200, seed=1)))
            await asyncio.sleep(0.2)
            await patient.update_weights(WeightSource("file", path=other), 1)
            return await call, await patient.generate(prompts(1)[0], SamplingParams(max_tokens=4))
        finally:
            await patient.close()

    during, after = run(update_on_the_way())
    assert [span.version for span in during.version_spans] == [0]
    assert [span.version for span in after.version_spans] == [1]


@pytest.mark.parametrize("at_once", [True, False])
def test_abort_keeps_what_was_sampled(engine, run, base, prompts, reference, waits_s, at_once):
    """Also one that overtakes its request."""
    prompt = prompts(1, 10, 11)[0]

    async def aborted(seed, wait_s):
        sampling = SamplingParams(max_tokens=2000, seed=seed)
        call = asyncio.create_task(engine.generate(prompt, sampling, session="gone"))
        await asyncio.sleep(0.0 if at_once else wait_s)
        await engine.abort("gone")
        return await call

    tries = (run(aborted(seed, wait_s)) for seed, wait_s in enumerate(waits_s))
    found = next(found for found in tries if found.finish_reason is FinishReason.ABORT)
    assert len(found.token_ids) < 2000
    if len(found.token_ids):
        close(found.logprobs, reference(base, prompt, found.token_ids))


def test_an_action_is_clipped_at_the_context_and_says_so(engine, run, prompts):
    prompt = prompts(1, 2036, 2037)[0]
    found = run(engine.generate(prompt, SamplingParams(max_tokens=100, seed=3)))
    assert found.finish_reason is FinishReason.LENGTH
    assert len(found.token_ids) == 12


@pytest.mark.parametrize("bad", [[3, 100_000], [3, -1]])
def test_token_ids_the_model_does_not_have_are_refused(engine, run, bad):
    with pytest.raises(EngineError):
        run(engine.generate(token_array(bad), SamplingParams(max_tokens=2)))


def test_weights_of_another_shape_are_refused_and_the_engine_recovers(engine, run, base, tmp_path, prompts, reference):
    from safetensors.torch import load_file, save_file

    tensors = load_file(base / "model.safetensors")
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:64].clone()
    save_file(tensors, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(EngineError, match="collective_rpc"):
        run(engine.update_weights(WeightSource("file", path=tmp_path), 3))
    run(engine.update_weights(WeightSource("file", path=base), 4))
    prompt = prompts(1)[0]
    found = run(engine.generate(prompt, SamplingParams(max_tokens=8)))
    close(found.logprobs, reference(base, prompt, found.token_ids))


def test_the_routes_that_change_weights_want_the_token(address):
    import httpx

    url, token = address
    for path in ("/collective_rpc", "/pause", "/inference/v1/generate"):
        assert httpx.post(url + path, json={}).status_code == 401
    assert httpx.get(url + "/health", headers={"Authorization": f"Bearer {token}"}).status_code == 200
