"""Model families that ``renderers`` knows: rendered and parsed by token id, tool calls in the family's own format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentr1_core.mdp import Message, ParseFailure, ParseStatus, TokenArray, ToolSpec, token_array
from agentr1_core.render.contract import ChatRenderer, Parsed, assemble


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
        return assemble(text, response.content, response.reasoning_content, calls, failures, first_call)
