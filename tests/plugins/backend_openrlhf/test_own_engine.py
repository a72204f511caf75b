"""OpenRLHF's engines through the handle of an agent executor. The handle here answers what a test gives it; the real
one is played with in ``tests/servers/openrlhf``."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest

from agentr1_backend_openrlhf.own_engine import OpenRLHFEngine
from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.errors import EngineError, PluginError
from agentr1_core.mdp import FinishReason, token_array


class Handle:
    """vLLM's side of ``RolloutRayActor.generate``."""

    def __init__(self, ids, logprobs, finish_reason="stop", n_cached=None) -> None:
        said = (
            None if logprobs is None else [{t: SimpleNamespace(logprob=p)} for t, p in zip(ids, logprobs, strict=True)]
        )
        output = SimpleNamespace(token_ids=tuple(ids), logprobs=said, finish_reason=finish_reason)
        self._answer = SimpleNamespace(outputs=[output], num_cached_tokens=n_cached)
        self.asked: list[tuple[list[int], SimpleNamespace]] = []

    async def generate(self, prompt_token_ids, sampling_params):
        self.asked.append((prompt_token_ids, sampling_params))
        return self._answer


def sample(handle, **sampling):
    engine = OpenRLHFEngine.attached(handle, SimpleNamespace, 64)
    return asyncio.run(engine.generate(token_array([1, 2]), SamplingParams(**sampling)))


def test_tokens_and_log_probs_come_as_they_were_sampled() -> None:
    handle = Handle([5, 2], [-0.5, -1.5])
    found = sample(handle, max_tokens=7, temperature=0.7, top_k=5, stop_token_ids=(2,))

    assert found.token_ids.tolist() == [5, 2]
    np.testing.assert_allclose(found.logprobs, [-0.5, -1.5])
    assert found.finish_reason is FinishReason.STOP
    ((prompt, params),) = handle.asked
    assert prompt == [1, 2]
    assert (params.max_tokens, params.temperature, params.top_k, params.stop_token_ids) == (7, 0.7, 5, [2])
    assert params.logprobs == 0, "of the sampled token alone"


def test_the_whole_support_is_asked_for_in_vllms_way() -> None:
    handle = Handle([5], [-0.5])
    sample(handle)
    assert handle.asked[0][1].top_k == -1


def test_a_cut_action_says_so() -> None:
    assert sample(Handle([5], [-0.5], "length")).finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize(("told", "cached"), [(16, 16), (None, 0)])
def test_cached_prompt_tokens_are_counted_where_vllm_tells(told, cached) -> None:
    assert sample(Handle([5], [-0.5], n_cached=told)).cached_tokens == cached


def test_greedy_decoding_is_a_point_mass() -> None:
    assert sample(Handle([5], [-0.5]), temperature=0).logprobs.tolist() == [0.0]


@pytest.mark.parametrize("logprobs", [None, [float("nan")]])
def test_missing_log_probs_are_an_error(logprobs) -> None:
    with pytest.raises(EngineError, match="log-prob"):
        sample(Handle([5], logprobs))


def test_outside_a_launch_it_says_where_it_runs() -> None:
    with pytest.raises(EngineError, match="only inside an OpenRLHF launch"):
        asyncio.run(OpenRLHFEngine().start())


def test_its_weights_are_openrlhfs_business() -> None:
    with pytest.raises(PluginError, match="from OpenRLHF"):
        asyncio.run(OpenRLHFEngine().update_weights(WeightSource("file"), 1))
