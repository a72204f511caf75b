"""The contract of engines that take messages and answer with a message: model services behind a chat endpoint.

They play in evaluation and rollouts. They give no token ids, so nothing they say can be trained: backends refuse them
at the start, and rows and credit refuse their steps.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from agentr1_core.engine import Engine, SamplingParams
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason, Message, ParseFailure, TokenUsage, ToolCall, ToolSpec


class ContextExceeded(EngineError):
    """The conversation, with the tokens it may sample, is longer than the service's context. Ends the episode."""

    final = True


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The result of one ``chat`` call."""

    text: str
    #: The assistant message as the conversation keeps it; calls in the OpenAI shape, their arguments as mappings.
    message: Message
    tool_calls: tuple[ToolCall, ...] = ()
    parse_failures: tuple[ParseFailure, ...] = ()
    finish_reason: FinishReason = FinishReason.STOP
    #: ``None`` where the service does not say.
    usage: TokenUsage | None = None
    #: Added to the episode's counters, such as ``engine/retries``.
    counters: Mapping[str, float] = field(default_factory=dict)


class ChatEngine(Engine):
    """Answers conversations. Its capabilities say ``token_ids=False`` and ``logprobs=False``."""

    @abstractmethod
    async def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec],
        sampling: SamplingParams,
        *,
        session: str | None = None,
    ) -> ChatReply:
        """Sample one answer. Cancelling the call cancels the request.

        Args:
            messages: The conversation, at least one message.
            tools: What the model may call.
            sampling: How to sample; stop ids mean nothing here and are refused when the run is built.
            session: Names the episode.

        Raises:
            ContextExceeded: The conversation is too long for the service.
            EngineError: There are no messages, or the service failed; ``final`` where asking again cannot help.
        """
