"""What a renderer does: prompt tokens from messages, a message from sampled tokens, exact continuation of a turn."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_core.mdp import Message, ParseFailure, ParseStatus, TokenArray, ToolCall, ToolSpec
from agentr1_core.tool_format import has_half_character


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


def assemble(
    text: str,
    content: str,
    reasoning: str | None,
    calls: Sequence[tuple[str, dict[str, Any], str | None]],
    failures: Sequence[ParseFailure],
    first_call: int,
) -> Parsed:
    """The message that sampled tokens parse to, its calls numbered from ``first_call`` where they have no ids.

    A call with half a character in it is no valid JSON here: no later prompt could show it.
    """
    broken = [call for call in calls if has_half_character(call[:2])]
    calls = [call for call in calls if call not in broken]
    failures = [
        *failures,
        *(
            ParseFailure(ParseStatus.INVALID_JSON, json.dumps({"name": name, "arguments": arguments}))
            for name, arguments, _ in broken
        ),
    ]
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
