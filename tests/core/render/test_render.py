"""Rendering: an observation that extends the last one continues it token for token, anything else is a new row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentr1_core.errors import ConfigError, DataError
from agentr1_core.mdp import Observation, ParseStatus, token_array
from agentr1_core.render import ContextTracker, create_chat_renderer

USER = {"role": "user", "content": "Hi"}
SPEC = {"name": "f", "description": "", "parameters": {"type": "object", "properties": {}}}


def say(tokenizer, text, stop=True):
    return token_array([*tokenizer.encode(text), *([tokenizer.eos_token_id] if stop else [])])


def play(renderer, tokenizer, observation, text, stop=True):
    """Show an observation, answer with a text; returns the tracker, the prompt, the tokens and what they parse to."""
    tracker = ContextTracker(renderer)
    rendered = tracker.render(observation)
    shown = Observation(observation.messages, observation.tools, rendered.prompt_ids)
    action_ids = say(tokenizer, text, stop)
    parsed = renderer.parse(action_ids, rendered.prompt_ids, observation.tools)
    tracker.track(shown, action_ids, parsed)
    return tracker, rendered.prompt_ids, action_ids, parsed


@pytest.fixture(scope="module")
def renderer(tokenizer):
    return create_chat_renderer(tokenizer)


@pytest.fixture(scope="module")
def qwen_tokenizer(tokenizer):
    """The test tokenizer with the further special tokens of the Qwen3 family."""
    from copy import deepcopy

    qwen = deepcopy(tokenizer)
    extra = ["<|endoftext|>", "<think>", "</think>", "<tool_response>", "</tool_response>"]
    qwen.add_special_tokens({"extra_special_tokens": extra})
    return qwen


def test_first_prompt_is_the_chat_template(renderer, tokenizer):
    rendered = ContextTracker(renderer).render(Observation((USER,)))
    assert tokenizer.decode(rendered.prompt_ids) == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert (rendered.continued, rendered.reason) == (False, "first")


@given(answer=st.text(st.characters(codec="utf-8", exclude_characters="<|>"), max_size=20), reply=st.text(max_size=20))
def test_continuation_equals_the_full_rendering_and_keeps_sampled_tokens(renderer, tokenizer, answer, reply):
    tracker, prompt, action, parsed = play(renderer, tokenizer, Observation((USER,)), answer)
    following = Observation((USER, parsed.message, {"role": "user", "content": reply}))
    rendered = tracker.render(following)
    assert rendered.continued
    assert rendered.prompt_ids[: len(prompt) + len(action)].tolist() == [*prompt, *action]
    if parsed.message["content"] == answer:  # nothing was stripped, so the template writes the same tokens
        assert np.array_equal(rendered.prompt_ids, renderer.render(following.messages, ()))


def test_sampled_tokens_that_text_would_lose_are_kept(renderer, tokenizer):
    """The model closes its call with odd white space; a rendering from text would normalise it."""
    text = '<tool_call>{ "name":"f",   "arguments":{} }</tool_call>'
    tracker, prompt, action, parsed = play(renderer, tokenizer, Observation((USER,), (SPEC,)), text)
    following = Observation((USER, parsed.message, {"role": "tool", "content": "ok"}), (SPEC,))
    rendered = tracker.render(following)
    assert rendered.continued
    assert rendered.prompt_ids[: len(prompt) + len(action)].tolist() == [*prompt, *action]
    assert not np.array_equal(rendered.prompt_ids, renderer.render(following.messages, (SPEC,)))


def test_cut_answer_is_closed_by_the_template_not_by_the_action(renderer, tokenizer):
    tracker, prompt, action, parsed = play(renderer, tokenizer, Observation((USER,)), "I was cu", stop=False)
    rendered = tracker.render(Observation((USER, parsed.message, USER)))
    assert rendered.continued
    assert rendered.prompt_ids[len(prompt) + len(action)] == tokenizer.eos_token_id


@pytest.mark.parametrize(
    ("rewrite", "reason"),
    [
        (lambda seen, said: Observation(({"role": "user", "content": "Other"},)), "rewritten"),
        (lambda seen, said: Observation((*seen, said)), "rewritten"),
        (lambda seen, said: Observation((*seen, {**said, "content": "edited"}, USER)), "rewritten"),
        (lambda seen, said: Observation((*seen, said, USER, said, USER)), "rewritten"),
        (lambda seen, said: Observation((*seen, said, USER), (SPEC,)), "tools_changed"),
    ],
)
def test_anything_else_opens_a_new_row(renderer, tokenizer, rewrite, reason):
    tracker, *_, parsed = play(renderer, tokenizer, Observation((USER,)), "Hello")
    rendered = tracker.render(rewrite((USER,), parsed.message))
    assert (rendered.continued, rendered.reason) == (False, reason)


def test_template_that_rewrites_history_opens_a_new_row(tokenizer):
    from copy import deepcopy

    forgetful = deepcopy(tokenizer)
    forgetful.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% if loop.last or m.role != 'assistant' %}{{ m.content }}{% else %}[...]{% endif %}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    renderer = create_chat_renderer(forgetful)
    tracker, *_, parsed = play(renderer, forgetful, Observation((USER,)), "Hello")
    rendered = tracker.render(Observation((USER, parsed.message, USER)))
    assert (rendered.continued, rendered.reason) == (False, "template")


def test_end_of_turn_beside_the_end_of_sequence_ends_answers_too(tokenizer):
    from copy import deepcopy

    two_ends = deepcopy(tokenizer)
    two_ends.eos_token = "<|pad|>"
    renderer = create_chat_renderer(two_ends, name="template")
    end_of_turn = two_ends.convert_tokens_to_ids("<|im_end|>")
    assert renderer.stop_token_ids == (end_of_turn, two_ends.eos_token_id)
    prompt = renderer.render([USER], ())
    action = token_array([*two_ends.encode("Hello"), end_of_turn])
    message = renderer.parse(action, prompt, ()).message
    assert message["content"] == "Hello"
    extended = renderer.extend(prompt, action, [USER, message], [USER], ())
    assert extended.tolist() == renderer.render([USER, message, USER], ()).tolist()


def test_template_without_tools_gets_them_described_and_written(tokenizer):
    from copy import deepcopy

    plain = deepcopy(tokenizer)
    plain.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    renderer = create_chat_renderer(plain)
    text = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
    tracker, prompt, _, parsed = play(renderer, plain, Observation((USER,), (SPEC,)), text)
    assert '"name": "f"' in plain.decode(prompt)  # in a system message made for it
    following = (USER, parsed.message, {"role": "tool", "content": "ok"})
    assert tracker.render(Observation(following, (SPEC,))).continued
    assert text in plain.decode(renderer.render(following, (SPEC,)))


def test_calls_get_ids_that_go_on_over_the_conversation(renderer, tokenizer):
    text = '<tool_call>{"name": "f"}</tool_call><tool_call>{"name": "g"}</tool_call>'
    parsed = renderer.parse(say(tokenizer, text), token_array([1]), (), first_call=3)
    assert [(call.name, call.id) for call in parsed.tool_calls] == [("f", "call_3"), ("g", "call_4")]


def test_broken_call_keeps_its_text_in_the_message(renderer, tokenizer):
    parsed = renderer.parse(say(tokenizer, "<tool_call>{oops</tool_call>"), token_array([1]), ())
    assert [failure.status for failure in parsed.failures] == [ParseStatus.INVALID_JSON]
    assert parsed.message == {"role": "assistant", "content": "<tool_call>{oops</tool_call>"}


@pytest.mark.parametrize("family", [False, True])
def test_a_call_with_half_a_character_is_broken_json_and_can_be_shown(renderer, tokenizer, qwen_tokenizer, family):
    if family:
        renderer, tokenizer = create_chat_renderer(qwen_tokenizer, name="qwen3"), qwen_tokenizer
    text = '<tool_call>\n{"name": "f", "arguments": {"x": "\\ud83d"}}\n</tool_call>'
    parsed = renderer.parse(say(tokenizer, text), token_array([1]), (SPEC,))
    assert [failure.status for failure in parsed.failures] == [ParseStatus.INVALID_JSON]
    assert parsed.tool_calls == ()
    told = {"role": "user", "content": parsed.failures[0].raw}
    assert "\\ud83d" in tokenizer.decode(renderer.render((USER, parsed.message, told), (SPEC,)))


def test_known_family_goes_through_renderers(qwen_tokenizer):
    renderer = create_chat_renderer(qwen_tokenizer, name="qwen3")
    text = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'
    tracker, prompt, action, parsed = play(renderer, qwen_tokenizer, Observation((USER,), (SPEC,)), text)
    assert [(call.name, call.arguments) for call in parsed.tool_calls] == [("f", {"x": 1})]
    following = Observation((USER, parsed.message, {"role": "tool", "content": "ok"}), (SPEC,))
    rendered = tracker.render(following)
    assert rendered.continued
    assert rendered.prompt_ids[: len(prompt) + len(action)].tolist() == [*prompt, *action]
    assert "<tool_response>\nok\n</tool_response>" in qwen_tokenizer.decode(rendered.prompt_ids)


def test_bad_tokenizers_and_names_are_refused(tokenizer):
    from copy import deepcopy

    bare = deepcopy(tokenizer)
    bare.chat_template = None
    with pytest.raises(ConfigError, match="no chat template"):
        create_chat_renderer(bare)
    with pytest.raises(ConfigError, match="Unknown renderer 'qwen99'"):
        create_chat_renderer(tokenizer, name="qwen99")
    with pytest.raises(ConfigError, match=r"'qwen3' does not fit .*<\|endoftext\|>"):
        create_chat_renderer(tokenizer, name="qwen3")


def test_messages_that_the_template_rejects_name_their_roles(tokenizer):
    from copy import deepcopy

    strict = deepcopy(tokenizer)
    strict.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(DataError, match=r"\[user\]: roles must alternate"):
        create_chat_renderer(strict).render([USER], ())
