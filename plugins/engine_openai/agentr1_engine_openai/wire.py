"""The chat completions format: a conversation to a request body, a response body to a reply.

Pure functions. Calls are kept with their arguments as mappings and sent as the JSON text that the format wants.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentr1_core.chat_engine import ChatReply
from agentr1_core.engine import SamplingParams
from agentr1_core.mdp import FinishReason, Message, ParseFailure, ParseStatus, TokenUsage, ToolSpec
from agentr1_core.render.contract import assemble
from agentr1_core.tool_format import has_half_character
from agentr1_engine_openai.settings import OpenAISettings


def request_body(
    settings: OpenAISettings, messages: Sequence[Message], tools: Sequence[ToolSpec], sampling: SamplingParams
) -> dict[str, Any]:
    """What is posted to ``/chat/completions``; parameters that change nothing are left out."""
    named: dict[str, Any] = {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
    if sampling.top_p < 1:
        named["top_p"] = sampling.top_p
    if sampling.seed is not None:
        named["seed"] = sampling.seed
    for name in settings.omit:
        named.pop(name, None)
    if "max_tokens" in named:
        named[settings.max_tokens_field] = named.pop("max_tokens")
    # Not OpenAI's, but understood by vLLM, SGLang and llama.cpp; a service that does not refuses them by name.
    if sampling.top_k:
        named["top_k"] = sampling.top_k
    if sampling.min_p:
        named["min_p"] = sampling.min_p
    if settings.stop:
        named["stop"] = list(settings.stop)
    if tools:
        named["tools"] = [{"type": "function", "function": dict(tool)} for tool in tools]
    return {
        "model": settings.model,
        "messages": [sent_message(message) for message in messages],
        **named,
        **settings.extra_body,
    }


def sent_message(message: Message) -> dict[str, Any]:
    """A message with the keys that every service takes: reasoning and a tool's name are not among them."""
    sent = {"role": message["role"], "content": message.get("content") or ""}
    if message.get("tool_calls"):
        sent["tool_calls"] = [_sent_call(call) for call in message["tool_calls"]]
    if message["role"] == "tool":
        sent["tool_call_id"] = message.get("tool_call_id", "")
    elif "name" in message:
        sent["name"] = message["name"]
    return sent


def _sent_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str):  # a prompt of a data set may have them as text already
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {
        "id": call.get("id", ""),
        "type": "function",
        "function": {"name": function["name"], "arguments": arguments},
    }


def read_reply(body: Any, *, first_call: int = 0) -> ChatReply:
    """The first choice of a response.

    Args:
        body: The JSON of the response.
        first_call: Numbers calls that have no ids.

    Raises:
        ValueError: It is no chat completion; says what is missing.
    """
    choice = _first_choice(body)
    said = choice.get("message")
    if not isinstance(said, Mapping):
        raise ValueError("the choice has no message")
    content = _text(said.get("content")) or _text(said.get("refusal"))
    calls: list[tuple[str, dict[str, Any], str | None]] = []
    failures: list[ParseFailure] = []
    for call in said.get("tool_calls") or ():
        read = _read_call(call)
        if isinstance(read, ParseFailure):
            failures.append(read)
        else:
            calls.append(read)
    # What did not parse is shown to the model again, so that it can see its mistake.
    text = "\n".join(filter(None, [content, *(failure.raw for failure in failures)]))
    reasoning = _text(said.get("reasoning_content")) or _text(said.get("reasoning"))
    parsed = assemble(text, content, reasoning or None, calls, failures, first_call)
    finish = str(choice.get("finish_reason"))
    return ChatReply(
        text=text,
        message=parsed.message,
        tool_calls=parsed.tool_calls,
        parse_failures=parsed.failures,
        finish_reason=FinishReason.LENGTH if finish == "length" else FinishReason.STOP,
        usage=_usage(body.get("usage")),
        counters={"engine/content_filtered": 1} if finish == "content_filter" else {},
    )


def _first_choice(body: Any) -> Mapping[str, Any]:
    if not isinstance(body, Mapping):
        raise ValueError(f"it is a {type(body).__name__}, not an object")
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], Mapping):
        raise ValueError("it has no choices")
    return choices[0]


def _read_call(call: Any) -> tuple[str, dict[str, Any], str | None] | ParseFailure:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return ParseFailure(ParseStatus.MALFORMED_STRUCTURE, json.dumps(call, ensure_ascii=False, default=str))
    name, given = function.get("name"), function.get("arguments")
    raw = json.dumps({"name": name, "arguments": given}, ensure_ascii=False, default=str)
    if not isinstance(name, str) or not name:
        return ParseFailure(ParseStatus.MISSING_NAME, raw)
    arguments = given
    if isinstance(given, str):
        try:
            arguments = json.loads(given) if given.strip() else {}
        except ValueError:
            return ParseFailure(ParseStatus.INVALID_JSON, raw)
        if has_half_character(arguments):
            return ParseFailure(ParseStatus.INVALID_JSON, raw)
    elif given is None:
        arguments = {}
    if not isinstance(arguments, dict):
        return ParseFailure(ParseStatus.MALFORMED_STRUCTURE, raw)
    call_id = call.get("id")
    return name, arguments, call_id if isinstance(call_id, str) and call_id else None


def _text(content: Any) -> str:
    """Text, or the text parts of a list of typed parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, Mapping))


def _usage(usage: Any) -> TokenUsage | None:
    if not isinstance(usage, Mapping):
        return None
    prompt, sampled = usage.get("prompt_tokens"), usage.get("completion_tokens")
    if not (isinstance(prompt, int) and isinstance(sampled, int)) or min(prompt, sampled) < 0:
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    return TokenUsage(prompt, sampled, cached if isinstance(cached, int) else 0)
