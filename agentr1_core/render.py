"""Messages to prompt tokens, sampled tokens to a message, and the exact continuation from one turn to the next.

``renderers`` does this for the model families it knows; any other model goes through its tokenizer's own chat
template with a *proved* delta. The collector keeps one ``ContextTracker`` for each line of conversation. Sampled
tokens are never rebuilt from text here: either the next prompt starts with them, or it is a new row.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentr1_core.errors import ConfigError, DataError
from agentr1_core.mdp import (
    Message,
    Observation,
    ParseFailure,
    ParseStatus,
    TokenArray,
    ToolCall,
    ToolSpec,
    token_array,
)
from agentr1_core.tool_format import HermesFormat, ToolFormat


@dataclass(frozen=True, slots=True)
class Parsed:
    """What sampled tokens say."""

    text: str
    message: Message
    tool_calls: tuple[ToolCall, ...]
    failures: tuple[ParseFailure, ...]


class ChatRenderer(ABC):
    """Turns conversations into tokens and back for one model."""

    #: Tokens at which an answer ends.
    stop_token_ids: tuple[int, ...]

    @abstractmethod
    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> TokenArray:
        """The prompt that makes the model answer ``messages``, ``(n_prompt,)`` int32.

        Raises:
            DataError: The chat template rejects the messages.
        """

    @abstractmethod
    def extend(
        self,
        prompt_ids: TokenArray,
        action_ids: TokenArray,
        messages: Sequence[Message],
        new_messages: Sequence[Message],
        tools: Sequence[ToolSpec],
    ) -> TokenArray | None:
        """The next prompt after an action, without rendering the sampled tokens again.

        Args:
            prompt_ids: What the model saw.
            action_ids: What it sampled.
            messages: The conversation up to and including the assistant message that the action parsed to.
            new_messages: What follows; no assistant message among them.
            tools: The tools on offer, the same as before.

        Returns:
            Tokens, or ``None`` when that cannot be proved right. The caller checks that they start with the prompt
            and the action.
        """

    @abstractmethod
    def parse(
        self, action_ids: TokenArray, prompt_ids: TokenArray, tools: Sequence[ToolSpec], *, first_call: int = 0
    ) -> Parsed:
        """What the sampled tokens say; ``first_call`` numbers the calls when the format has no ids."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt and how it came about."""

    prompt_ids: TokenArray
    #: Whether it starts with the previous prompt and action, token for token.
    continued: bool
    #: Why it was rendered anew; ``first``, ``rewritten``, ``tools_changed``, ``template``; empty when continued.
    reason: str = ""


class ContextTracker:
    """Knows what was last shown and sampled; renders the next observation as its exact continuation if it is one."""

    def __init__(self, renderer: ChatRenderer) -> None:
        self.renderer = renderer
        self._last: tuple[Observation, TokenArray, Parsed] | None = None

    def render(self, observation: Observation) -> Rendered:
        """The prompt of an observation."""
        if self._last is None:
            return self._anew(observation, "first")
        shown, action_ids, parsed = self._last
        before = (*shown.messages, parsed.message)
        following = observation.messages[len(before) :]
        if observation.messages[: len(before)] != before or not following:
            return self._anew(observation, "rewritten")
        if any(message.get("role") == "assistant" for message in following):
            return self._anew(observation, "rewritten")
        if observation.tools != shown.tools:
            return self._anew(observation, "tools_changed")
        if shown.prompt_ids is None:
            raise ValueError("The last observation was tracked before it was rendered.")
        ids = self.renderer.extend(shown.prompt_ids, action_ids, before, following, observation.tools)
        if ids is None or not _starts_with(ids, shown.prompt_ids, action_ids):
            return self._anew(observation, "template")
        return Rendered(ids, continued=True)

    def track(self, observation: Observation, action_ids: TokenArray, parsed: Parsed) -> None:
        """Remember what was shown (rendered) and sampled."""
        self._last = (observation, action_ids, parsed)

    def _anew(self, observation: Observation, reason: str) -> Rendered:
        return Rendered(self.renderer.render(observation.messages, observation.tools), continued=False, reason=reason)


def _starts_with(ids: TokenArray, *parts: TokenArray) -> bool:
    prefix = np.concatenate(parts)
    return len(ids) >= len(prefix) and bool(np.array_equal(ids[: len(prefix)], prefix))


def create_chat_renderer(
    tokenizer: Any,
    *,
    name: str = "auto",
    tool_format: ToolFormat | None = None,
    template_kwargs: Mapping[str, Any] | None = None,
) -> ChatRenderer:
    """The renderer for a tokenizer.

    Args:
        tokenizer: A Hugging Face tokenizer.
        name: A family of ``renderers`` (``"qwen3"``, ``"llama-3"``, ...), ``"template"`` for the tokenizer's own chat
            template, or ``"auto"``: the family registered for the tokenizer's ``name_or_path``, else the template.
        tool_format: How tools are called where the template decides; Hermes by default.
        template_kwargs: Passed to the chat template, for example ``{"enable_thinking": False}``.

    Raises:
        ConfigError: The family is unknown or does not fit, or the tokenizer has no chat template.
    """
    import renderers  # half a second: only programs that render pay for it
    from renderers.base import MODEL_RENDERER_MAP

    kwargs = dict(template_kwargs or {})
    family = MODEL_RENDERER_MAP.get(getattr(tokenizer, "name_or_path", "")) if name == "auto" else name
    if family is None or family in ("template", "default"):
        return TemplateRenderer(tokenizer, tool_format or HermesFormat(), kwargs)
    try:
        config = renderers.config_from_name(family)
    except (KeyError, ValueError) as error:
        raise ConfigError(
            f"Unknown renderer '{family}'.", "Use 'auto', 'template' or a family that the renderers package lists."
        ) from error
    try:
        renderer = renderers.create_renderer(tokenizer, config, chat_template_kwargs=kwargs or None)
    except (AssertionError, TypeError, ValueError) as error:  # how renderers reports a token or argument it misses
        raise ConfigError(
            f"The renderer '{family}' does not fit the tokenizer '{getattr(tokenizer, 'name_or_path', '')}': {error}",
            "Use the renderer of the tokenizer's own family, or 'template'.",
        ) from error
    return FamilyRenderer(renderer, tokenizer)


class FamilyRenderer(ChatRenderer):
    """A model family that ``renderers`` knows."""

    def __init__(self, renderer: Any, tokenizer: Any) -> None:
        self._renderer = renderer
        self._tokenizer = tokenizer
        self.stop_token_ids = tuple(renderer.get_stop_token_ids())

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> TokenArray:
        return token_array(
            self._renderer.render_ids(list(messages), tools=list(tools) or None, add_generation_prompt=True)
        )

    def extend(
        self,
        prompt_ids: TokenArray,
        action_ids: TokenArray,
        messages: Sequence[Message],
        new_messages: Sequence[Message],
        tools: Sequence[ToolSpec],
    ) -> TokenArray | None:
        bridged = self._renderer.bridge_to_next_turn(
            prompt_ids.tolist(), action_ids.tolist(), list(new_messages), tools=list(tools) or None
        )
        return None if bridged is None else token_array(bridged.token_ids)

    def parse(
        self, action_ids: TokenArray, prompt_ids: TokenArray, tools: Sequence[ToolSpec], *, first_call: int = 0
    ) -> Parsed:
        response = self._renderer.parse_response(
            action_ids.tolist(), tools=list(tools) or None, prompt_ids=prompt_ids.tolist()
        )
        text = self._tokenizer.decode(action_ids.tolist(), skip_special_tokens=True)
        calls: list[tuple[str, dict[str, Any], str | None]] = []
        failures: list[ParseFailure] = []
        for attempt in response.tool_calls:
            arguments = attempt.arguments
            if attempt.status.value != "ok":
                failures.append(ParseFailure(ParseStatus(attempt.status.value), attempt.raw))
            elif not isinstance(arguments, dict):
                failures.append(ParseFailure(ParseStatus.MALFORMED_STRUCTURE, attempt.raw))
            elif not isinstance(attempt.name, str) or not attempt.name:
                failures.append(ParseFailure(ParseStatus.MISSING_NAME, attempt.raw))
            else:
                calls.append((attempt.name, arguments, attempt.id))
        return _parsed(text, response.content, response.reasoning_content, calls, failures, first_call)


class TemplateRenderer(ChatRenderer):
    """Any other model, through its tokenizer's chat template.

    A template that leaves out the tools gets them described in the system message; one that leaves out
    ``tool_calls`` gets them written into the assistant's content. Both are found out by rendering a probe.
    """

    def __init__(self, tokenizer: Any, tool_format: ToolFormat, template_kwargs: Mapping[str, Any]) -> None:
        if getattr(tokenizer, "chat_template", None) is None:
            raise ConfigError(
                f"The tokenizer of '{getattr(tokenizer, 'name_or_path', '') or 'this model'}' has no chat template.",
                "Use an instruct or chat model, or set `tokenizer.chat_template`.",
            )
        if tokenizer.eos_token_id is None:
            raise ConfigError(
                f"The tokenizer of '{tokenizer.name_or_path}' has no end-of-sequence token.",
                "Set `tokenizer.eos_token`; without it no answer would ever end.",
            )
        self._tokenizer = tokenizer
        self._format = tool_format
        self._kwargs = dict(template_kwargs)
        self.stop_token_ids = (int(tokenizer.eos_token_id),)
        self._shows_tools = self._probe_tools()
        self._shows_calls = self._probe_calls()

    def render(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> TokenArray:
        return token_array(self._apply(messages, tools, prompt=True))

    def extend(
        self,
        prompt_ids: TokenArray,
        action_ids: TokenArray,
        messages: Sequence[Message],
        new_messages: Sequence[Message],
        tools: Sequence[ToolSpec],
    ) -> TokenArray | None:
        opened = self._apply(messages[:-1], tools, prompt=True)
        without = self._apply(messages, tools, prompt=False)
        with_new = self._apply([*messages, *new_messages], tools, prompt=True)
        if without[: len(opened)] != opened or with_new[: len(without)] != without:
            return None  # the template rewrites history when messages follow
        (stop,) = self.stop_token_ids
        closing = _after_last(without[len(opened) :], stop)
        if closing is None:
            return None  # the template does not end an answer with the stop token, so its seam is unknown
        sampled = action_ids.tolist()
        seam = closing if sampled and sampled[-1] == stop else [stop, *closing]
        return token_array([*prompt_ids.tolist(), *sampled, *seam, *with_new[len(without) :]])

    def parse(
        self, action_ids: TokenArray, prompt_ids: TokenArray, tools: Sequence[ToolSpec], *, first_call: int = 0
    ) -> Parsed:
        ids = action_ids.tolist()
        if ids and ids[-1] in self.stop_token_ids:
            ids = ids[:-1]
        text = self._tokenizer.decode(ids, skip_special_tokens=False)
        found = self._format.parse(text)
        calls = [(name, arguments, None) for name, arguments in found.calls]
        return _parsed(text, found.content, None, calls, list(found.failures), first_call)

    def _apply(self, messages: Sequence[Message], tools: Sequence[ToolSpec], *, prompt: bool) -> list[int]:
        shown = [self._plain(message) for message in messages]
        kwargs = dict(self._kwargs)
        if tools and self._shows_tools:
            kwargs["tools"] = [{"type": "function", "function": dict(spec)} for spec in tools]
        elif tools:
            shown = _with_system(shown, self._format.describe(tools))
        return self._template(shown, prompt, kwargs)

    def _template(self, messages: list[Message], prompt: bool, kwargs: Mapping[str, Any]) -> list[int]:
        try:
            ids = self._tokenizer.apply_chat_template(
                messages, add_generation_prompt=prompt, tokenize=True, return_dict=False, **kwargs
            )
        except Exception as error:  # Jinja templates raise anything
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise DataError(
                f"The chat template rejects messages with the roles [{roles}]: {error}",
                "Change the messages, or choose a model whose template takes them.",
            ) from error
        return list(ids)

    def _plain(self, message: Message) -> Message:
        """A message with its tool calls written out where the template would leave them out."""
        calls = message.get("tool_calls")
        if not calls or self._shows_calls:
            return message
        written = [self._format.write(*_name_and_arguments(call)) for call in calls]
        content = "\n".join(part for part in (message.get("content") or "", *written) if part)
        return {"role": message["role"], "content": content}

    def _probe_tools(self) -> bool:
        spec = {"name": "agentr1_probe", "description": "", "parameters": {"type": "object", "properties": {}}}
        return self._probe_finds(
            [{"role": "user", "content": "x"}], {"tools": [{"type": "function", "function": spec}]}
        )

    def _probe_calls(self) -> bool:
        call = {"type": "function", "id": "call_0", "function": {"name": "agentr1_probe", "arguments": {}}}
        return self._probe_finds(
            [{"role": "user", "content": "x"}, {"role": "assistant", "content": "", "tool_calls": [call]}], {}
        )

    def _probe_finds(self, messages: list[Message], kwargs: Mapping[str, Any]) -> bool:
        try:
            ids = self._template(messages, False, {**self._kwargs, **kwargs})
        except DataError:
            return False  # a template that rejects the probe does not show it
        return "agentr1_probe" in self._tokenizer.decode(ids)


def _parsed(
    text: str,
    content: str,
    reasoning: str | None,
    calls: Sequence[tuple[str, dict[str, Any], str | None]],
    failures: Sequence[ParseFailure],
    first_call: int,
) -> Parsed:
    tool_calls = tuple(
        ToolCall(name, arguments, call_id or f"call_{first_call + position}")
        for position, (name, arguments, call_id) in enumerate(calls)
    )
    # With a broken call the raw text is kept, so that a later rendering still shows what was said.
    message: Message = {"role": "assistant", "content": text if failures and not tool_calls else content}
    if reasoning:
        message["reasoning_content"] = reasoning
    if tool_calls:
        message["tool_calls"] = [
            {"type": "function", "id": call.id, "function": {"name": call.name, "arguments": call.arguments}}
            for call in tool_calls
        ]
    return Parsed(text, message, tool_calls, tuple(failures))


def _name_and_arguments(call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    function = call["function"]
    arguments = function.get("arguments") or {}
    return function["name"], json.loads(arguments) if isinstance(arguments, str) else arguments


def _with_system(messages: Sequence[Message], text: str) -> list[Message]:
    if messages and messages[0].get("role") == "system":
        first = {**messages[0], "content": f"{messages[0]['content']}\n\n{text}"}
        return [first, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]


def _after_last(ids: Sequence[int], token: int) -> list[int] | None:
    """The ids after the last occurrence of ``token``; ``None`` when it does not occur."""
    for position in range(len(ids) - 1, -1, -1):
        if ids[position] == token:
            return list(ids[position + 1 :])
    return None
