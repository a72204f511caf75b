"""What the engine makes of a server's answers: exact ones become generations, all others errors with the cause."""

import asyncio

import numpy as np
import pytest

from agentr1_core.engine import SamplingParams
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason, VersionSpan, token_array
from agentr1_core.serving import RequestRefused, ServerFault, ServerTimeout

PROMPT = token_array([3, 4, 5])
GENERATE = "/inference/v1/generate"


def once(max_tokens=4, **sampling):
    async def work(engine):
        return await engine.generate(PROMPT, SamplingParams(max_tokens=max_tokens, **sampling), session="s")

    return work


def test_a_good_answer_is_taken_as_it_is(fake, on_servers):
    found = on_servers([fake], once(top_p=0.9, seed=11, stop_token_ids=(2,)))
    assert found.token_ids.tolist() == [7, 7, 7, 7]
    assert found.token_ids.dtype == np.int32
    assert found.logprobs.tolist() == [-0.5] * 4
    assert found.finish_reason is FinishReason.LENGTH
    assert found.version_spans == (VersionSpan(4, 0),)
    assert found.cached_tokens == 3
    sent = fake.generations()[-1]
    assert sent["token_ids"] == [3, 4, 5]
    assert sent["sampling_params"] == {
        "max_tokens": 4,
        "temperature": 1.0,
        "top_p": 0.9,
        "top_k": 0,
        "min_p": 0.0,
        "stop_token_ids": [2],
        "logprobs": 0,
        "detokenize": False,
        "seed": 11,
    }


def test_greedy_tokens_have_logprob_zero(fake, on_servers):
    assert on_servers([fake], once(temperature=0.0)).logprobs.tolist() == [0.0] * 4


def test_a_change_of_weights_on_the_way_is_kept(fake, on_servers):
    spans = [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 4}]
    fake.on[GENERATE] = lambda body: (200, fake.generation(body, weight_versions=spans)) if is_call(body) else None
    assert on_servers([fake], once()).version_spans == (VersionSpan(1, 3), VersionSpan(3, 4))


def is_call(body):
    """Whether it is a call of the test and not the check at the start."""
    return body["sampling_params"]["max_tokens"] > 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"logprobs": None}, "log-probs for 0 tokens of an action of 4"),
        ({"logprobs": {"content": [{"token_id": 8, "logprob": -1.0}] * 4}}, "other ones"),
        ({"logprobs": {"content": [{"token_id": 7, "logprob": -9999.0}] * 4}}, "not finite"),
        ({"token_ids": [7, 7], "logprobs": {"content": [{"token_id": 7, "logprob": -1.0}] * 2}}, "at 2 of 4 tokens"),
        ({"token_ids": [], "logprobs": None, "weight_versions": None}, "without tokens"),
        ({"finish_reason": "error"}, "'error'"),
        ({"weight_versions": None}, "cover 0 of 4"),
        ({"weight_versions": [{"version": "default", "start": 1, "end": 4}]}, "do not follow"),
        ({"weight_versions": [{"version": "theirs", "start": 0, "end": 4}]}, "somebody else"),
        ({"token_ids": "seven"}, "not understood"),
    ],
)
def test_an_answer_that_is_not_exact_is_an_error(fake, on_servers, changes, words):
    fake.on[GENERATE] = lambda body: (200, fake.generation(body, **changes)) if is_call(body) else None
    with pytest.raises(EngineError, match=words):
        on_servers([fake], once())


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((500, {"error": {"message": "out of memory"}}), ServerFault, "out of memory"),
        ((503, b"busy"), ServerFault, "503"),
        ((400, {"error": {"message": "Token id 99 is out of vocabulary"}}), RequestRefused, "out of vocabulary"),
        ((200, b"<html>"), ServerFault, "no JSON"),
        ((200, {"choices": []}), EngineError, "not understood"),
    ],
)
def test_a_fault_names_its_cause(fake, on_servers, answer, error, words):
    fake.on[GENERATE] = lambda body: answer if is_call(body) else None
    with pytest.raises(error, match=words):
        on_servers([fake], once())


def test_a_server_that_takes_too_long_is_an_error(fake, on_servers):
    fake.on[GENERATE] = lambda body: fake.until_aborted(body) if is_call(body) else None
    with pytest.raises(ServerTimeout, match="no answer within"):
        on_servers([fake], once(), request_timeout_s=0.3)


def test_an_action_is_clipped_to_the_context_beforehand(fake, on_servers):
    async def work(engine):
        return await engine.generate(token_array([3] * 60), SamplingParams(max_tokens=100))

    found = on_servers([fake], work)
    assert len(found.token_ids) == 4
    assert found.finish_reason is FinishReason.LENGTH


@pytest.mark.parametrize("prompt", [[], [3] * 64, [3, -1]])
def test_a_prompt_that_cannot_be_answered_is_refused_without_asking(fake, on_servers, prompt):
    async def work(engine):
        asked = len(fake.generations())
        with pytest.raises(EngineError):
            await engine.generate(token_array(prompt), SamplingParams(max_tokens=2))
        return len(fake.generations()) - asked

    assert on_servers([fake], work) == 0


def test_abort_returns_what_was_sampled(fake, on_servers):
    fake.on[GENERATE] = lambda body: fake.until_aborted(body) if is_call(body) else None

    async def work(engine):
        call = asyncio.create_task(engine.generate(PROMPT, SamplingParams(max_tokens=50), session="mine"))
        other = asyncio.create_task(engine.generate(PROMPT, SamplingParams(max_tokens=50), session="other"))
        await asyncio.sleep(0.05)
        await engine.abort("mine")
        stopped = await call
        still = not other.done()
        await engine.abort("other")
        return stopped, still, await other

    stopped, still, other = on_servers([fake], work)
    assert still
    assert stopped.finish_reason is other.finish_reason is FinishReason.ABORT
    assert stopped.token_ids.tolist() == [7, 7]
