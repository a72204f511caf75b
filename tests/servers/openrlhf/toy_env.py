"""An environment that a model without any training learns in a few updates, with and without rewriting its context."""

from __future__ import annotations

from agentr1_core.env import AgentEnv


class EvenTokens(AgentEnv):
    """Turns that are each worth the share of even numbers among the sampled tokens.

    Args:
        turns: How many.
        rewrites: Whether a later turn shows a context of its own rather than a longer one.
        ends_at_noise: Whether an episode ends with what a chat template would not write back token for token, as a
            model without any training says at times: its context then only grows, whatever is sampled.
    """

    def __init__(self, turns: int = 2, rewrites: bool = True, ends_at_noise: bool = False) -> None:
        self._turns, self._rewrites, self._ends_at_noise = turns, rewrites, ends_at_noise
        self._messages: list[dict[str, str]] = []
        self._taken = 0

    async def reset(self, task):
        self._messages = [{"role": "user", "content": task["question"]}]
        return self._messages

    async def step(self, action):
        self._taken += 1
        reward = float((action.token_ids % 2 == 0).mean())
        again = {"role": "user", "content": f"turn {self._taken}"}
        self._messages = [again] if self._rewrites else [*self._messages, action.message, again]
        said = action.message["content"]
        noise = said != said.strip() or "<|" in said
        done = self._taken == self._turns or (self._ends_at_noise and noise)
        return self._messages, reward, done, False, {"success": reward > 0.5}
