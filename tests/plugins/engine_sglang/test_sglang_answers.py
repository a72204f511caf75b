"""What the engine makes of a server's answers: exact ones become generations, all others errors with the cause."""

import asyncio

import numpy as np
import pytest

from agentr1_core.engine import SamplingParams
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason, VersionSpan, token_array
from agentr1_core.serving import RequestRefused, ServerFault, ServerTimeout

PROMPT = token_array([3, 4, 5])
GENERATE = "/generate"


def once(max_tokens=4, **sampling):
    async def work(engine):
        return await engine.generate(PROMPT, SamplingParams(max_tokens=max_tokens, **sampling), session="s")

    return work


def is_call(body):
    """Whether it is a call of the test and not the check at the start."""
    return body["rid"] != "agentr1-check"


def test_a_good_answer_is_taken_as_it_is(fake, on_servers):
    found = on_servers([fake], once(temperature=0.7, stop_token_ids=(2,)))
    assert found.token_ids.tolist() == [7, 7, 7, 7]
    assert found.token_ids.dtype == np.int32
    assert found.logprobs.tolist() == [-0.5] * 4
    assert found.finish_reason is FinishReason.LENGTH
    assert found.version_spans == (VersionSpan(4, 0),)
    (sent,) = fake.calls()
    assert sent["input_ids"] == [3, 4, 5]
    assert sent["return_logprob"] is True
    assert "return_sampling_mask" not in sent
    assert sent["sampling_params"] == {
        "max_new_tokens": 4,
        "temperature": 0.7,
        "top_p": 1.0,
        "top_k": -1,
        "min_p": 0.0,
        "stop_token_ids": [2],
    }


@pytest.mark.parametrize(("limit", "top_k"), [({"top_p": 0.9}, 4096), ({"min_p": 0.1}, 4096), ({"top_k": 20}, 20)])
def test_what_is_left_to_sample_from_decides_the_logprobs(fake, on_servers, limit, top_k):
    found = on_servers([fake], once(**limit))
    assert found.logprobs.tolist() == [-0.25] * 4  # not -0.5, which knows nothing of the limit
    (sent,) = fake.calls()
    assert sent["return_sampling_mask"] is True
    assert sent["sampling_params"]["top_k"] == top_k


def test_greedy_tokens_have_logprob_zero(fake, on_servers):
    assert on_servers([fake], once(temperature=0.0, top_p=0.5)).logprobs.tolist() == [0.0] * 4


def test_a_change_of_weights_on_the_way_is_kept(fake, on_servers):
    spans = [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 4}]
    fake.on[GENERATE] = lambda body: (200, fake.generation(body, weight_versions=spans)) if is_call(body) else None
    assert on_servers([fake], once()).version_spans == (VersionSpan(1, 3), VersionSpan(3, 4))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"output_token_logprobs": []}, "log-probs for 0 tokens of an action of 4"),
        ({"output_token_logprobs": [[-1.0, 8, None]] * 4}, "other ones"),
        ({"output_token_logprobs": [[float("nan"), 7, None]] * 4}, "not finite"),
        ({"output_ids": [7, 7], "output_token_logprobs": [[-1.0, 7, None]] * 2}, "at 2 of 4 tokens"),
        ({"output_ids": [], "output_token_logprobs": [], "weight_versions": []}, "without tokens"),
        ({"finish_reason": {"type": "error"}}, "'error'"),
        ({"weight_versions": []}, "cover 0 of 4"),
        ({"weight_versions": [{"version": "default", "start": 1, "end": 4}]}, "do not follow"),
        ({"weight_versions": [{"version": "theirs", "start": 0, "end": 4}]}, "somebody else"),
        ({"output_ids": "seven"}, "not understood"),
        ({"weight_versions": None}, "cover 0 of 4"),
    ],
)
def test_an_answer_that_is_not_exact_is_an_error(fake, on_servers, changes, words):
    fake.on[GENERATE] = lambda body: (200, fake.generation(body, **changes)) if is_call(body) else None
    with pytest.raises(EngineError, match=words):
        on_servers([fake], once())


@pytest.mark.parametrize("found", [None, [-0.1]])
def test_logprobs_of_what_is_left_must_be_there(fake, on_servers, found):
    answer = {"output_token_sampling_logprobs": found}
    fake.on[GENERATE] = lambda body: (200, fake.generation(body, **answer)) if is_call(body) else None
    with pytest.raises(EngineError, match=r"log-probs for [01] tokens of an action of 4"):
        on_servers([fake], once(top_p=0.9))


@pytest.mark.parametrize(
    ("answer", "error", "words"),
    [
        ((500, {"error": {"message": "out of memory"}}), ServerFault, "out of memory"),
        ((503, b"busy"), ServerFault, "503"),
        ((400, {"error": {"message": "The input is longer than"}}), RequestRefused, "The input is longer than"),
        ((200, b"<html>"), ServerFault, "no JSON"),
        ((200, []), EngineError, "not understood"),
    ],
)
def test_a_fault_names_its_cause(fake, on_servers, answer, error, words):
    fake.on[GENERATE] = lambda body: answer if is_call(body) else None
    with pytest.raises(error, match=words):
        on_servers([fake], once())


def test_a_server_that_takes_too_long_is_an_error(fake, on_servers):
    fake.on[GENERATE] = lambda body: fake.until_aborted(body) if is_call(body) else None

    async def work(engine):
        engine._fleet.members[0].client._timeout_s = 0.3
        await engine.generate(PROMPT, SamplingParams(max_tokens=4))

    with pytest.raises(ServerTimeout, match="no answer within"):
        on_servers([fake], work)


@pytest.fixture
def short(fake):
    """A server whose context is 64 tokens."""
    info = fake.answer("/server_info", None)[1]
    fake.on["/server_info"] = (200, {**info, "max_req_input_len": 63})
    return fake


def test_an_action_is_clipped_to_the_context_beforehand(short, on_servers):
    async def work(engine):
        return await engine.generate(token_array([3] * 60), SamplingParams(max_tokens=100))

    found = on_servers([short], work)
    assert len(found.token_ids) == 4
    assert found.finish_reason is FinishReason.LENGTH


@pytest.fixture
def model(short, tmp_path):
    """The server's model has a configuration here, with a vocabulary of 100 tokens."""
    (tmp_path / "config.json").write_text('{"vocab_size": 100}')
    _, info = short.on["/server_info"]
    short.on["/server_info"] = (200, {**info, "model_path": str(tmp_path)})


@pytest.mark.parametrize(
    ("prompt", "sampling"),
    [
        ([], {}),
        ([3] * 64, {}),
        ([3, -1], {}),
        ([3, 100], {}),
        ([3], {"seed": 1}),
        ([3], {"top_k": 5000}),
    ],
)
def test_what_cannot_be_answered_is_refused_without_asking(short, model, on_servers, prompt, sampling):
    async def work(engine):
        with pytest.raises(EngineError):
            await engine.generate(token_array(prompt), SamplingParams(max_tokens=2, **sampling))

    on_servers([short], work)
    assert short.calls() == []


@pytest.fixture
def deterministic(fake):
    """A server that was started with --enable-deterministic-inference."""
    info = fake.answer("/server_info", None)[1]
    fake.on["/server_info"] = (200, {**info, "enable_deterministic_inference": True})
    return fake


def test_a_deterministic_server_gets_a_seed_with_every_call(deterministic, on_servers):
    async def work(engine):
        assert engine.capabilities.seed
        for seed in (5, None, None):
            await engine.generate(PROMPT, SamplingParams(max_tokens=2, seed=seed))

    on_servers([deterministic], work)
    seeds = [body["sampling_params"]["sampling_seed"] for body in deterministic.calls()]
    assert seeds[0] == 5
    assert len(set(seeds)) == 3  # without one it would give every call the same


def test_a_deterministic_server_is_not_asked_for_what_it_ends_at(deterministic, on_servers):
    with pytest.raises(EngineError, match="min_p"):
        on_servers([deterministic], once(min_p=0.1))
    assert deterministic.calls() == []


def test_abort_returns_what_was_sampled(fake, on_servers):
    fake.on[GENERATE] = lambda body: fake.until_aborted(body) if is_call(body) else None

    async def work(engine):
        call = asyncio.create_task(engine.generate(PROMPT, SamplingParams(max_tokens=50), session="mine"))
        other = asyncio.create_task(engine.generate(PROMPT, SamplingParams(max_tokens=50), session="other"))
        while len(fake.calls()) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await engine.abort("mine")
        stopped = await call
        still = not other.done()
        await engine.abort("other")
        return stopped, still, await other

    stopped, still, other = on_servers([fake], work)
    assert still
    assert stopped.finish_reason is other.finish_reason is FinishReason.ABORT
    assert stopped.token_ids.tolist() == [7, 7]


@pytest.mark.parametrize("limit", [{}, {"top_p": 0.9}])
def test_what_was_aborted_before_it_began_is_an_empty_action(fake, on_servers, limit):
    """As SGLang 0.5.23 answers, with what it leaves out."""
    waiting = {"type": "abort", "message": "Abort in waiting queue"}
    answer = {"text": "", "output_ids": [], "meta_info": {"id": "x", "finish_reason": waiting, "weight_version": "0"}}
    fake.on[GENERATE] = lambda body: (200, answer) if is_call(body) else None
    found = on_servers([fake], once(**limit))
    assert found.finish_reason is FinishReason.ABORT
    assert (len(found.token_ids), found.version_spans) == (0, ())


def test_a_server_is_told_that_a_caller_is_gone(fake, on_servers):
    fake.on[GENERATE] = lambda body: fake.until_aborted(body) if is_call(body) else None

    async def work(engine):
        call = asyncio.create_task(engine.generate(PROMPT, SamplingParams(max_tokens=50)))
        while not fake.calls():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        call.cancel()
        await asyncio.wait({call})
        async with asyncio.timeout(10):
            while not fake.aborted:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    on_servers([fake], work)
    assert fake.aborted == {fake.calls()[0]["rid"]}
