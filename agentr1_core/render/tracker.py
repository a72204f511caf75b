"""Finds out whether an observation continues the last one, and renders it accordingly.

The collector keeps one tracker for each line of conversation. A continuation is accepted only when the next prompt
starts with the last prompt and the sampled tokens, token for token; anything else is rendered anew.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agentr1_core.mdp import Observation, TokenArray
from agentr1_core.render.contract import ChatRenderer, Parsed


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
