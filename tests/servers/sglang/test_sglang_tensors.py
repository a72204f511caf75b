"""Weights that are handed over as tensors reach a real server by each route, as the log-probs prove."""

import asyncio

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import EngineError
from agentr1_engine_sglang import tensors


@pytest.fixture(scope="session")
def handed(other):
    """The state of the other model as a trainer hands it over, tied embeddings under both names."""
    return dict(AutoModelForCausalLM.from_pretrained(other, dtype="float32").state_dict())


@pytest.mark.parametrize("route", ["tensors", "broadcast"])
def test_tensors_reach_the_server(engine, on_server, base, other, handed, prompts, reference, route, monkeypatch):
    monkeypatch.setattr(tensors, "CHUNK_BYTES", 200_000)  # so that there are several
    prompt = prompts(1, 40, 41)[0]

    async def update_on_the_way(other_engine):
        call = asyncio.create_task(other_engine.generate(prompt, SamplingParams(max_tokens=400)))
        await asyncio.sleep(0.2)
        await other_engine.update_weights(WeightSource("state_dict", tensors=handed), 3)
        during = await call
        after = await other_engine.generate(prompt, SamplingParams(max_tokens=16))
        return during, after

    during, after = on_server(update_on_the_way, weight_sync=route)
    assert [span.version for span in after.version_spans] == [3]
    np.testing.assert_allclose(after.logprobs, reference(other, prompt, after.token_ids), atol=1e-4)
    assert np.abs(after.logprobs - reference(base, prompt, after.token_ids)).max() > 0.1
    old, new = reference(base, prompt, during.token_ids), reference(other, prompt, during.token_ids)
    cut_at = sum(span.n_tokens for span in during.version_spans if span.version == 0)
    np.testing.assert_allclose(during.logprobs, np.concatenate([old[:cut_at], new[cut_at:]]), atol=1e-4)


@pytest.mark.parametrize("route", ["tensors", "broadcast"])
def test_a_server_that_was_away_gets_the_tensors_it_missed(engine, on_server, other, handed, prompts, reference, route):
    prompt = prompts(1, 40, 41)[0]

    async def away_and_back(other_engine):
        await other_engine.update_weights(WeightSource("state_dict", tensors=handed), 4)
        fleet, (member,) = other_engine._fleet, other_engine._fleet.members
        # Somebody else changes its weights meanwhile, as a restart would.
        await member.client.post("/update_weights_from_disk", {"model_path": str(other), "weight_version": "9"})
        fleet.mark_down(member, "it was away")
        await other_engine._take_back(fleet, member)
        return await other_engine.generate(prompt, SamplingParams(max_tokens=8))

    found = on_server(away_and_back, weight_sync=route)
    assert [span.version for span in found.version_spans] == [4]
    np.testing.assert_allclose(found.logprobs, reference(other, prompt, found.token_ids), atol=1e-4)


@pytest.mark.parametrize("route", ["tensors", "broadcast"])
def test_tensors_that_do_not_fit_are_refused_and_the_server_recovers(
    engine, on_server, handed, other, prompts, reference, route
):
    prompt = prompts(1, 40, 41)[0]
    wrong = {**handed, "model.norm.weight": handed["model.norm.weight"][:64].clone()}

    async def wrong_then_right(other_engine):
        with pytest.raises(EngineError):
            await other_engine.update_weights(WeightSource("state_dict", tensors=wrong), 5)
        assert not other_engine._fleet.up  # it has weights that nobody knows
        await other_engine.update_weights(WeightSource("state_dict", tensors=handed), 6)
        return await other_engine.generate(prompt, SamplingParams(max_tokens=8))

    found = on_server(wrong_then_right, weight_sync=route)
    assert [span.version for span in found.version_spans] == [6]
    np.testing.assert_allclose(found.logprobs, reference(other, prompt, found.token_ids), atol=1e-4)
