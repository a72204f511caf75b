"""Context policies: what of the history the model sees next.

``ContextEnv`` wraps any environment whose observations are the growing history and shows the model what its policy
makes of it. Appending continues the token sequence; every other policy rewrites it, which opens a new training row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agentr1_core.env import AgentEnv, EnvWrapper, StepResult, as_observation, reset_env, step_env
from agentr1_core.mdp import Action, Message, Observation
from agentr1_core.task import Task


class ContextPolicy(ABC):
    """Turns the whole history into what is shown. One instance serves one episode."""

    #: Messages the episode opened with; ``ContextEnv`` sets it. They may hold earlier assistant messages (examples).
    n_opening: int = 0

    @abstractmethod
    def view(self, history: Sequence[Message]) -> tuple[Message, ...]:
        """The messages the model sees; never changes ``history``."""

    def question(self, history: Sequence[Message]) -> Message | None:
        """A message that asks the model to act on the context itself, or ``None`` to go on with the task."""
        return None

    def absorb(self, history: Sequence[Message], answer: Action) -> None:
        """Take the model's answer to ``question``."""


class Append(ContextPolicy):
    """Show everything."""

    def view(self, history: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(history)


class KeepLast(ContextPolicy):
    """Show the opening messages and the last ``k`` turns (an assistant message and its answers)."""

    def __init__(self, k: int = 1) -> None:
        if k < 1:
            raise ValueError(f"keep-last needs k of at least 1, not {k}.")
        self.k = k

    def view(self, history: Sequence[Message]) -> tuple[Message, ...]:
        head, turns = split_turns(history, self.n_opening)
        return (*head, *(message for turn in turns[-self.k :] for message in turn))


class DropObservations(ContextPolicy):
    """Keep every turn, but of the answers only those of the last ``keep`` turns; older ones become a placeholder."""

    def __init__(self, keep: int = 1, placeholder: str = "[earlier observation dropped]") -> None:
        if keep < 0:
            raise ValueError(f"drop-observations needs keep of at least 0, not {keep}.")
        self.keep = keep
        self.placeholder = placeholder

    def view(self, history: Sequence[Message]) -> tuple[Message, ...]:
        head, turns = split_turns(history, self.n_opening)
        n_old = max(len(turns) - self.keep, 0)
        shown: list[Message] = list(head)
        for position, (assistant, *answers) in enumerate(turns):
            shown.append(assistant)
            if position < n_old:
                answers = [{**answer, "content": self.placeholder} for answer in answers]
            shown.extend(answers)
        return tuple(shown)


class Summarise(ContextPolicy):
    """Once more than ``after`` turns are shown, let the model itself summarise them; its summary is a trained step.

    Afterwards the model sees the opening messages, the summary, and the turns since.
    """

    def __init__(
        self,
        after: int = 4,
        question: str = "Summarise what you have done and learned so far. The earlier messages will be removed.",
        heading: str = "Summary of the work so far:\n",
    ) -> None:
        if after < 1:
            raise ValueError(f"summarise needs after of at least 1, not {after}.")
        self.after = after
        self._question: Message = {"role": "user", "content": question}
        self._heading = heading
        self._summary: Message | None = None
        self._n_summarised = 0

    def view(self, history: Sequence[Message]) -> tuple[Message, ...]:
        head, turns = split_turns(history, self.n_opening)
        summary = () if self._summary is None else (self._summary,)
        return (*head, *summary, *(message for turn in turns[self._n_summarised :] for message in turn))

    def question(self, history: Sequence[Message]) -> Message | None:
        _, turns = split_turns(history, self.n_opening)
        return self._question if len(turns) - self._n_summarised > self.after else None

    def absorb(self, history: Sequence[Message], answer: Action) -> None:
        _, turns = split_turns(history, self.n_opening)
        self._n_summarised = len(turns)
        self._summary = {"role": "user", "content": self._heading + str(answer.message.get("content") or answer.text)}


class Rewrite(ContextPolicy):
    """Show whatever a function makes of the history."""

    def __init__(self, rewrite: Callable[[tuple[Message, ...]], Sequence[Message]]) -> None:
        self.rewrite = rewrite

    def view(self, history: Sequence[Message]) -> tuple[Message, ...]:
        return tuple(self.rewrite(tuple(history)))


class ContextEnv(EnvWrapper):
    """An environment seen through a context policy."""

    def __init__(self, env: AgentEnv, policy: ContextPolicy) -> None:
        super().__init__(env)
        self.policy = policy
        self._asked = False

    async def reset(self, task: Task) -> Observation:
        self._history = await reset_env(self.env, task)
        self.policy.n_opening = len(self._history.messages)
        return self._show()

    async def step(self, action: Action) -> StepResult:
        if self._asked:
            self._asked = False
            self.policy.absorb(self._history.messages, action)
            return StepResult(self._show(), info={"context": "summarised"})
        result = await step_env(self.env, action)
        if result.observation is None:
            return result
        self._history = result.observation
        if result.terminated or result.truncated:
            return replace(result, observation=self._show())
        question = self.policy.question(self._history.messages)
        if question is None:
            return replace(result, observation=self._show())
        self._asked = True
        shown = self._show()
        asked = replace(shown, messages=(*shown.messages, question))
        return replace(result, observation=asked)

    def _show(self) -> Observation:
        shown = as_observation(self.policy.view(self._history.messages), f"context policy {type(self.policy).__name__}")
        return replace(self._history, messages=shown.messages, prompt_ids=None)


#: The policies by the names that run files use.
CONTEXT_POLICIES: Mapping[str, type[ContextPolicy]] = {
    "append": Append,
    "keep_last": KeepLast,
    "drop_observations": DropObservations,
    "summarise": Summarise,
    "rewrite": Rewrite,
}


def split_turns(
    history: Sequence[Message], n_opening: int = 0
) -> tuple[tuple[Message, ...], list[tuple[Message, ...]]]:
    """The opening messages, and the turns: each an assistant message with what came after it.

    The first ``n_opening`` messages open whatever their roles.
    """
    starts = [
        position
        for position, message in enumerate(history)
        if position >= n_opening and message.get("role") == "assistant"
    ]
    if not starts:
        return tuple(history), []
    ends = [*starts[1:], len(history)]
    return tuple(history[: starts[0]]), [tuple(history[a:b]) for a, b in zip(starts, ends, strict=True)]
