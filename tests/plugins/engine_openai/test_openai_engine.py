"""The chat engine against a service on a real socket: what is sent, what is read, and every way to fail."""

from __future__ import annotations

import asyncio
import json
import time
from email.utils import formatdate

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentr1_core.chat_engine import ContextExceeded
from agentr1_core.engine import SamplingParams
from agentr1_core.errors import ConfigError, EngineError
from agentr1_core.mdp import FinishReason, ParseStatus, TokenUsage
from agentr1_engine_openai import OpenAIEngine
from agentr1_engine_openai.wire import read_reply, request_body, sent_message

#: Times mean nothing on a busy machine.
law = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])

SEARCH = {"name": "search", "description": "Look it up.", "parameters": {"type": "object", "properties": {}}}


def call(arguments, name="search", id="c1"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_a_reply_has_text_usage_and_a_reason(engine_of, ask):
    reply = ask(engine_of())

    assert reply.text == "Hello."
    assert reply.message == {"role": "assistant", "content": "Hello."}
    assert reply.usage == TokenUsage(prompt=11, sampled=7, cached=3)
    assert reply.finish_reason is FinishReason.STOP
    assert reply.counters == {}


def test_sampling_and_tools_are_sent(service, engine_of, ask):
    settings = {"stop": ["\n\n"], "extra_body": {"logit_bias": {"5": -1}}, "headers": {"X-Team": "tests"}}
    ask(engine_of(**settings), tools=(SEARCH,), max_tokens=9, temperature=0.5, top_p=0.9, top_k=4, min_p=0.1, seed=3)

    (asked,) = service.asked
    assert asked["path"] == "/v1/chat/completions"
    assert asked["body"] == {
        "model": "tiny",
        "messages": [{"role": "user", "content": "Hi"}],
        "max_tokens": 9,
        "temperature": 0.5,
        "top_p": 0.9,
        "top_k": 4,
        "min_p": 0.1,
        "seed": 3,
        "stop": ["\n\n"],
        "tools": [{"type": "function", "function": SEARCH}],
        "logit_bias": {"5": -1},
    }
    assert asked["headers"]["X-Team"] == "tests"
    assert "Authorization" not in asked["headers"]


def test_what_a_service_refuses_is_left_out(service, engine_of, ask):
    engine = engine_of(omit=["temperature", "seed"], max_tokens_field="max_completion_tokens")
    ask(engine, max_tokens=5, seed=1)

    assert service.bodies == [
        {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 5}
    ]
    assert not engine.capabilities.seed


def test_calls_are_read_and_sent_again_as_they_were(service, engine_of, ask):
    service.answers = [{"role": "assistant", "content": None, "tool_calls": [call('{"q": "tea é"}')]}]
    reply = ask(engine_of(), tools=(SEARCH,))

    assert [(each.name, each.arguments, each.id) for each in reply.tool_calls] == [("search", {"q": "tea é"}, "c1")]
    assert sent_message(reply.message) == {
        "role": "assistant",
        "content": "",
        "tool_calls": [call('{"q": "tea é"}')],
    }
    assert sent_message({"role": "assistant", "tool_calls": [call('{"q": 1}')]})["tool_calls"] == [call('{"q": 1}')]
    answer = {"role": "tool", "tool_call_id": "c1", "name": "search", "content": "leaves"}
    assert sent_message(answer) == {"role": "tool", "tool_call_id": "c1", "content": "leaves"}


@pytest.mark.parametrize(
    ("function", "status"),
    [
        ({"name": "search", "arguments": '{"q": '}, ParseStatus.INVALID_JSON),
        ({"name": "search", "arguments": '{"q": "\\ud83d"}'}, ParseStatus.INVALID_JSON),
        ({"name": "search", "arguments": "[1]"}, ParseStatus.MALFORMED_STRUCTURE),
        ({"name": "", "arguments": "{}"}, ParseStatus.MISSING_NAME),
        ("search", ParseStatus.MALFORMED_STRUCTURE),
    ],
)
def test_a_call_that_does_not_parse_is_told(function, status):
    said = {"role": "assistant", "content": "Let me see.", "tool_calls": [{"id": "c1", "function": function}]}
    reply = read_reply({"choices": [{"message": said, "finish_reason": "tool_calls"}]})

    assert [failure.status for failure in reply.parse_failures] == [status]
    assert reply.tool_calls == ()
    # The model sees what it said, since a broken call cannot be sent back as a call.
    assert reply.message == {"role": "assistant", "content": reply.text}
    assert reply.text.startswith("Let me see.\n")


def test_calls_without_ids_are_numbered_on(service, engine_of, ask):
    said = {"role": "assistant", "content": "", "tool_calls": [call({"q": 1}, id=None), call("", id="")]}
    service.answers = [said]
    earlier = {"role": "assistant", "content": "", "tool_calls": [call({}, id="call_0")]}
    messages = [{"role": "user", "content": "Hi"}, earlier, {"role": "tool", "tool_call_id": "call_0", "content": "-"}]

    reply = ask(engine_of(), messages)

    assert [each.id for each in reply.tool_calls] == ["call_1", "call_2"]
    assert [each.arguments for each in reply.tool_calls] == [{"q": 1}, {}]


def test_reasoning_is_kept_and_not_sent():
    said = {"role": "assistant", "content": "4", "reasoning_content": "2 and 2"}
    reply = read_reply({"choices": [{"message": said, "finish_reason": "length"}], "usage": None})

    assert reply.message["reasoning_content"] == "2 and 2"
    assert sent_message(reply.message) == {"role": "assistant", "content": "4"}
    assert reply.finish_reason is FinishReason.LENGTH
    assert reply.usage is None


def test_a_filtered_answer_is_counted():
    said = {"role": "assistant", "content": None, "refusal": "No."}
    reply = read_reply({"choices": [{"message": said, "finish_reason": "content_filter"}]})

    assert reply.text == "No."
    assert reply.counters == {"engine/content_filtered": 1}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@law
@given(json_values)
def test_whatever_comes_is_a_reply_or_a_value_error(body):
    for each in (
        body,
        {"choices": [body]},
        {"choices": [{"message": body}]},
        {"choices": [{"message": {"tool_calls": [body]}}]},
    ):
        try:
            reply = read_reply(each)
        except ValueError:
            continue
        json.dumps(sent_message(reply.message))


@law
@given(st.dictionaries(st.text(max_size=8), json_values, max_size=3), st.text(min_size=1, max_size=8))
def test_arguments_come_through_unchanged(arguments, name):
    said = {"role": "assistant", "content": "", "tool_calls": [call(json.dumps(arguments), name=name)]}
    reply = read_reply({"choices": [{"message": said}]})

    assert reply.tool_calls[0].arguments == arguments
    settings = OpenAIEngine.Settings(model="m")
    sent = request_body(settings, [reply.message], (), SamplingParams())["messages"][0]["tool_calls"][0]["function"]
    assert json.loads(sent["arguments"]) == arguments
    assert sent["name"] == name


@pytest.mark.parametrize(
    "busy", [(429, {"error": {"message": "slow down"}}, {"retry-after": "0"}), (503, "<html>", {})]
)
def test_a_busy_service_is_asked_again(service, engine_of, ask, busy):
    service.answers = [busy, busy, "At last."]

    reply = ask(engine_of())

    assert reply.text == "At last."
    assert reply.counters == {"engine/retries": 2}
    assert len(service.asked) == 3


def test_it_does_not_come_back_before_it_may(service, engine_of, ask):
    later = formatdate(time.time() + 3600, usegmt=True)
    service.answers = [(429, {"error": {"message": "slow down"}}, {"retry-after": later})]

    with pytest.raises(EngineError, match="no answer to 1 request; the last fault: HTTP 429: slow down"):
        ask(engine_of())  # at once: an hour is more than it may take
    assert len(service.asked) == 1


def test_retries_come_to_an_end(service, engine_of, ask):
    service.answers = [(500, {"error": {"message": "out of memory"}}, {})]

    with pytest.raises(EngineError, match="no answer to 3 requests; the last fault: HTTP 500: out of memory") as caught:
        ask(engine_of(retries=2))
    assert caught.value.final  # the episode does not multiply them
    assert len(service.asked) == 3


def test_a_spent_quota_stays_spent(service, engine_of, ask):
    service.answers = [(429, {"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}, {})]

    with pytest.raises(EngineError, match="exceeded your quota"):
        ask(engine_of())
    assert len(service.asked) == 1


def test_a_service_that_hangs_is_given_up(service, engine_of, ask):
    service.release.clear()

    with pytest.raises(EngineError, match="no answer"):
        ask(engine_of(give_up_after_s=0.5))


def test_a_refused_key_names_the_service_and_the_variable(service, engine_of, ask, monkeypatch):
    monkeypatch.setenv("MY_KEY", "secret-key")
    service.models = (401, {"error": {"message": "bad key"}}, {})

    with pytest.raises(EngineError) as caught:
        ask(engine_of(api_key_env="MY_KEY"))
    assert service.url in caught.value.problem
    assert "model 'tiny'" in caught.value.problem
    assert "HTTP 401" in caught.value.problem
    assert "MY_KEY" in caught.value.mend
    assert "secret-key" not in str(caught.value)


def test_the_key_is_sent_and_only_where_it_is_meant_to_go(service, engine_of, ask, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "for-openai")
    monkeypatch.setenv("MY_KEY", "mine")
    ask(engine_of())
    ask(engine_of(api_key_env="MY_KEY"))

    assert [request["headers"].get("Authorization") for request in service.asked] == [None, "Bearer mine"]
    assert OpenAIEngine.Settings(model="m").api_key() == "for-openai"
    monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        OpenAIEngine.Settings(model="m").api_key()


def test_an_unknown_model_names_those_there_are(service, engine_of, ask):
    service.answers = [(404, {"error": {"message": "The model 'huge' does not exist"}}, {})]

    with pytest.raises(EngineError) as caught:
        ask(engine_of(model="huge"))
    assert f"{service.url}, model 'huge': not found (HTTP 404)" in caught.value.problem
    assert "tiny, big" in caught.value.mend
    assert len(service.asked) == 1


@pytest.mark.parametrize(
    "error",
    [
        {"message": "too many tokens", "code": "context_length_exceeded"},
        {"message": "This model's maximum context length is 2048 tokens. However, you requested 4000", "code": 400},
        {"message": "the request exceeds the available context size", "type": "exceed_context_size_error"},
    ],
)
def test_a_conversation_that_is_too_long_is_no_fault(service, engine_of, ask, error):
    service.answers = [(400, {"error": error}, {})]

    with pytest.raises(ContextExceeded):
        ask(engine_of())


def test_a_refused_request_says_what_it_was(service, engine_of, ask):
    service.answers = [(400, {"error": {"message": "Unsupported parameter: 'temperature'"}}, {})]

    with pytest.raises(EngineError, match="Unsupported parameter: 'temperature'") as caught:
        ask(engine_of())
    assert "engine.omit" in caught.value.mend


@pytest.mark.parametrize("nonsense", ["<html>Welcome</html>", {"object": "list"}, {"choices": []}, {"choices": [{}]}])
def test_an_answer_that_is_no_completion_is_shown(service, engine_of, ask, nonsense):
    service.answers = [(200, nonsense, {})]

    with pytest.raises(EngineError, match="no chat completion") as caught:
        ask(engine_of())
    assert "/v1" in caught.value.mend


def test_an_answer_that_cannot_be_decoded_is_asked_for_again(service, engine_of, ask):
    service.answers = [(200, "cut off", {"content-encoding": "gzip"}), "Hello."]
    assert ask(engine_of(retry_delay_s=0)).text == "Hello."
    service.answers = [(200, "cut off", {"content-encoding": "gzip"})]
    with pytest.raises(EngineError, match="the last fault: DecodingError"):
        ask(engine_of(retries=1, retry_delay_s=0))


def test_nobody_there(engine_of, ask):
    with pytest.raises(EngineError, match=r"http://127\.0\.0\.1:9/v1 cannot be reached"):
        ask(engine_of(base_url="http://127.0.0.1:9/v1/chat/completions"))


def test_a_service_without_a_list_of_models_is_used_all_the_same(service, engine_of, ask):
    service.models = (404, "nothing here", {})

    assert ask(engine_of()).text == "Hello."


def test_closing_ends_what_waits(service, engine_of, run):
    service.release.clear()
    engine = engine_of()

    async def work():
        await engine.start()
        waiting = asyncio.create_task(engine.chat([{"role": "user", "content": "Hi"}], (), SamplingParams()))
        assert await asyncio.to_thread(service.arrived.wait, 60)
        await engine.close()
        with pytest.raises(EngineError, match="was closed while it waited"):
            await waiting
        with pytest.raises(EngineError, match="is closed"):
            await engine.chat([{"role": "user", "content": "Hi"}], (), SamplingParams())

    run(work())


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({}, "model"),
        ({"model": "m", "base_url": "localhost:8000"}, "no http"),
        ({"model": "m", "extra_body": {"stream": True}}, "stream is set by the engine"),
        ({"model": "m", "omit": ["top_q"]}, "omit"),
    ],
)
def test_settings_are_checked(settings, what):
    with pytest.raises(ValueError, match=what):
        OpenAIEngine.Settings(**settings)
