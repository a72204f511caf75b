"""Any other model, through its tokenizer's own chat template, with a continuation that is proved or refused."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentr1_core.errors import ConfigError, DataError
from agentr1_core.mdp import Message, TokenArray, ToolSpec, token_array
from agentr1_core.render.contract import ChatRenderer, Parsed, assemble
from agentr1_core.tool_format import ToolFormat


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
        self._shows_tools = self._probe_tools()
        self._shows_calls = self._probe_calls()
        eos = int(tokenizer.eos_token_id)
        #: What the template ends an answer with; some models have an end of turn beside the end of sequence.
        self._end = self._probe_end() or eos
        self.stop_token_ids = tuple(dict.fromkeys((self._end, eos)))

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
        closing = _after_last(without[len(opened) :], self._end)
        if closing is None:
            return None  # the template does not end an answer with a token of its own, so its seam is unknown
        sampled = action_ids.tolist()
        seam = closing if sampled and sampled[-1] == self._end else [self._end, *closing]
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
        return assemble(text, found.content, None, calls, list(found.failures), first_call)

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

    def _probe_end(self) -> int | None:
        """The first special token after an answer's content; ``None`` where the template writes none."""
        try:
            ids = self._template(
                [{"role": "user", "content": "x"}, {"role": "assistant", "content": "agentr1_probe"}],
                False,
                self._kwargs,
            )
        except DataError:
            return None
        starts = (n for n in range(len(ids) - 1, -1, -1) if "agentr1_probe" in self._tokenizer.decode(ids[n:]))
        added = getattr(self._tokenizer, "added_tokens_decoder", {})
        special = {*self._tokenizer.all_special_ids, *(n for n, token in added.items() if token.special)}
        return next((token for token in ids[next(starts, len(ids)) :] if token in special), None)

    def _probe_finds(self, messages: list[Message], kwargs: Mapping[str, Any]) -> bool:
        try:
            ids = self._template(messages, False, {**self._kwargs, **kwargs})
        except DataError:
            return False  # a template that rejects the probe does not show it
        return "agentr1_probe" in self._tokenizer.decode(ids)


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
