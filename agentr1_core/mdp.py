"""The step-level MDP: what one agent turn is, and what a trajectory and a group of them are.

These are plain frozen records. The collector writes them, estimators and rows read them, and nothing ever
rebuilds tokens from text: the ids that the engine sampled, stored here, are the only record of what happened.
This module imports nothing from its siblings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

#: A chat message in the OpenAI shape: ``role``, ``content`` and optionally ``tool_calls``, ``name`` and so on.
Message = dict[str, Any]
#: A tool as the model sees it: ``name``, ``description`` and ``parameters`` (a JSON schema).
ToolSpec = dict[str, Any]
#: Token ids, ``(n_tokens,)`` int32.
TokenArray = NDArray[np.int32]
#: One number for each token, ``(n_tokens,)`` float32.
FloatArray = NDArray[np.float32]


def token_array(ids: Sequence[int] | NDArray[Any]) -> TokenArray:
    """Token ids as a one-dimensional int32 array."""
    return np.asarray(ids, dtype=np.int32).reshape(-1)


def float_array(values: Sequence[float] | NDArray[Any]) -> FloatArray:
    """Per-token numbers as a one-dimensional float32 array."""
    return np.asarray(values, dtype=np.float32).reshape(-1)


class StopReason(StrEnum):
    """Why an episode ended. Exactly one holds for each trajectory."""

    COMPLETED = "completed"  #: the flow returned by itself
    TERMINATED = "terminated"  #: the environment reached a terminal state
    TRUNCATED = "truncated"  #: the environment cut the episode short
    MAX_STEPS = "max_steps"  #: the limit on turns was reached
    CONTEXT_OVERFLOW = "context_overflow"  #: the next observation leaves no room to answer
    TOKEN_BUDGET = "token_budget"  #: the episode's budget of sampled tokens is spent
    TIMEOUT = "timeout"  #: a step or the whole episode passed its deadline
    ENV_ERROR = "env_error"  #: the environment, the flow or the reward raised
    ENGINE_ERROR = "engine_error"  #: the engine failed more often than it may be retried
    ABORTED = "aborted"  #: cancelled from outside

    @property
    def is_failure(self) -> bool:
        """Whether the trajectory says nothing about the policy and must not be trained on."""
        return self in _FAILURES

    @property
    def is_truncation(self) -> bool:
        """Whether the episode was cut short by a limit, so that its value does not end at zero."""
        return self in _TRUNCATIONS


_FAILURES = frozenset({StopReason.ENV_ERROR, StopReason.ENGINE_ERROR, StopReason.ABORTED})
_TRUNCATIONS = frozenset(
    {
        StopReason.TRUNCATED,
        StopReason.MAX_STEPS,
        StopReason.CONTEXT_OVERFLOW,
        StopReason.TOKEN_BUDGET,
        StopReason.TIMEOUT,
    }
)


@dataclass(frozen=True, slots=True)
class Observation:
    """What the model is shown before it acts.

    An environment fills ``messages`` (and ``tools``); the collector fills ``prompt_ids`` when it renders them.
    """

    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    #: The exact prompt tokens, ``(n_prompt,)`` int32; ``None`` until rendered.
    prompt_ids: TokenArray | None = None
    #: Names the underlying state, so that estimators can compare steps that saw the same one.
    anchor: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call that parsed: syntax is right, nothing is said yet about the name or the arguments."""

    name: str
    arguments: dict[str, Any]
    id: str


class ParseStatus(StrEnum):
    """Why a tool call did not parse."""

    INVALID_JSON = "invalid_json"
    UNCLOSED_BLOCK = "unclosed_block"
    MISSING_NAME = "missing_name"
    MALFORMED_STRUCTURE = "malformed_structure"
    UNKNOWN_TOOL = "unknown_tool"


@dataclass(frozen=True, slots=True)
class ParseFailure:
    """A tool call that the model attempted and that did not parse; the environment sees and answers it."""

    status: ParseStatus
    raw: str

    def explain(self) -> str:
        """One sentence for the model, saying what was wrong with its call."""
        return _PARSE_HELP[self.status]


_PARSE_HELP = {
    ParseStatus.INVALID_JSON: "The tool call is not valid JSON.",
    ParseStatus.UNCLOSED_BLOCK: "The tool call was opened but never closed.",
    ParseStatus.MISSING_NAME: "The tool call does not name a tool.",
    ParseStatus.MALFORMED_STRUCTURE: "The tool call is malformed: give a name and an object of arguments.",
    ParseStatus.UNKNOWN_TOOL: "The tool call names a tool that does not exist.",
}


class FinishReason(StrEnum):
    """Why the engine stopped sampling."""

    STOP = "stop"  #: a stop token was sampled
    LENGTH = "length"  #: ``max_tokens`` or the context was reached
    ABORT = "abort"  #: aborted; the partial result is kept


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """``n_tokens`` consecutive sampled tokens that came from one version of the weights."""

    n_tokens: int
    version: int


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """What a server says that one action took, in tokens, where it gives no token ids."""

    prompt: int
    sampled: int
    #: Of the prompt, what came from the server's cache.
    cached: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Action:
    """What the model sampled in one turn, token for token, and what it parses to."""

    #: Sampled tokens, stop token included, ``(n_tokens,)`` int32.
    token_ids: TokenArray
    #: Log-probability (nats) of each sampled token under the distribution it was sampled from, ``(n_tokens,)``.
    logprobs: FloatArray
    text: str = ""
    #: The assistant message the tokens parse to.
    message: Message = field(default_factory=lambda: {"role": "assistant", "content": ""})
    tool_calls: tuple[ToolCall, ...] = ()
    parse_failures: tuple[ParseFailure, ...] = ()
    finish_reason: FinishReason = FinishReason.STOP
    #: Which weights sampled which tokens; the spans add up to ``n_tokens``.
    version_spans: tuple[VersionSpan, ...] = ()
    #: Sampling parameters that shaped the distribution (temperature, top_p, top_k, ...).
    sampling: Mapping[str, Any] = field(default_factory=dict)
    #: Prompt tokens whose keys and values came from the engine's cache.
    cached_tokens: int = 0
    #: Whether ``token_ids`` are what was sampled. ``False`` for a reply that came as text alone: its arrays are empty,
    #: and rows and credit refuse it.
    trainable: bool = True
    #: The server's own count, where the ids are not known.
    usage: TokenUsage | None = None

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.logprobs):
            raise ValueError(
                f"An action has {len(self.token_ids)} tokens but {len(self.logprobs)} log-probs; "
                "the engine must give one for each sampled token."
            )

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def n_sampled(self) -> int:
        """Tokens sampled, by the server's count where the ids are not known (0 where it gives none)."""
        return len(self.token_ids) if self.usage is None else self.usage.sampled

    def __repr__(self) -> str:
        return f"<Action of {len(self)} tokens: {self.text!r}>"


@dataclass(frozen=True, slots=True)
class Step:
    """One transition of the step-level MDP.

    ``terminated`` says that the task reached a terminal state: nothing follows, the value after it is zero.
    ``truncated`` says that a limit cut the episode: the value of ``next_observation`` is not zero.
    """

    index: int
    observation: Observation
    action: Action
    #: The messages the environment answered with; empty after the last step.
    feedback: tuple[Message, ...] = ()
    #: ``None`` where the environment gave no reward (counted as zero if any step of the trajectory has one).
    reward: float | None = None
    terminated: bool = False
    truncated: bool = False
    next_observation: Observation | None = None
    #: Whether the prompt extends the previous step's prompt and action token for token.
    continued: bool = False
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def prompt_ids(self) -> TokenArray:
        """The exact tokens the model saw, ``(n_prompt,)`` int32."""
        if self.observation.prompt_ids is None:
            raise ValueError(f"Step {self.index} was never rendered: its observation has no prompt_ids.")
        return self.observation.prompt_ids

    @property
    def n_prompt(self) -> int:
        """Tokens the model saw, by the server's count where the ids are not known (0 where it gives none)."""
        if self.observation.prompt_ids is not None:
            return len(self.observation.prompt_ids)
        return 0 if self.action.usage is None else self.action.usage.prompt


@dataclass(frozen=True, slots=True, repr=False)
class Trajectory:
    """One episode of one task."""

    id: str
    group_id: str
    task: Mapping[str, Any]
    steps: tuple[Step, ...]
    stop_reason: StopReason
    #: What went wrong, with its cause, when ``stop_reason`` is a failure or a time-out.
    error: str | None = None
    #: Each reward by name, already added to the steps' rewards.
    rewards: Mapping[str, float] = field(default_factory=dict)
    #: Counters of this episode (tool calls, parse failures, tokens/continued, ...).
    counters: Mapping[str, float] = field(default_factory=dict)
    #: Wall-clock seconds from reset to the end.
    seconds: float = 0.0

    @property
    def is_scorable(self) -> bool:
        """Whether any step has a reward; without one the trajectory has no return."""
        return any(step.reward is not None for step in self.steps)

    @property
    def ret(self) -> float:
        """Undiscounted return: the sum of the steps' rewards, ``None`` counting as zero."""
        return float(sum(step.reward or 0.0 for step in self.steps))

    @property
    def n_sampled(self) -> int:
        """Tokens the model sampled in all steps together, whose ids are known."""
        return sum(len(step.action) for step in self.steps)

    @property
    def n_tokens(self) -> int:
        """The same with tokens that only a server counted."""
        return sum(step.action.n_sampled for step in self.steps)

    @property
    def is_trainable(self) -> bool:
        """Whether the tokens of every step are known."""
        return all(step.action.trainable for step in self.steps)

    def __repr__(self) -> str:
        return f"<Trajectory {self.id}: {len(self.steps)} steps, return {self.ret:g}, {self.stop_reason.value}>"


@dataclass(frozen=True, slots=True, repr=False)
class Group:
    """Trajectories of one task that are compared with each other."""

    id: str
    task: Mapping[str, Any]
    trajectories: tuple[Trajectory, ...]
    #: Episodes that failed and were left out, each with its ``stop_reason`` and ``error``.
    failed: tuple[Trajectory, ...] = ()

    def __repr__(self) -> str:
        return f"<Group {self.id}: {len(self.trajectories)} trajectories, {len(self.failed)} failed>"
