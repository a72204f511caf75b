"""Flows: how one episode is played, when ``reset`` and ``step`` are not enough.

A flow calls ``ctx.generate(observation)`` as often as it likes, for one thread of conversation or several, and says
with ``ctx.record`` what followed each action. The context renders, samples, keeps the budgets and stores the steps.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from agentr1_core.env import ObservationLike, StepResult
from agentr1_core.errors import DataError
from agentr1_core.mdp import Action, StopReason
from agentr1_core.task import Task


class EpisodeOver(Exception):
    """Raised by ``FlowContext.generate`` when a limit forbids another action; let it pass."""

    def __init__(self, reason: StopReason, detail: str) -> None:
        self.reason = reason
        super().__init__(detail)


class FlowContext(ABC):
    """What a flow may use; the collector provides it, one for each episode."""

    #: Deadline of one turn (sampling plus the environment's answer), in seconds.
    step_timeout_s: float | None = None

    @abstractmethod
    async def generate(
        self, observation: ObservationLike, *, thread: str = "main", engine: str = "policy", **sampling: Any
    ) -> Action:
        """Show the model an observation and sample its action; this records a step.

        Args:
            observation: What the model sees.
            thread: Names a line of conversation; an observation is compared with the last one of its thread to
                see whether it continues it. Sub-agents use threads of their own.
            engine: ``"policy"`` is the model in training. Other engines answer too, but add no step.
            sampling: Overrides for this action, for example ``max_tokens=64``.

        Raises:
            EpisodeOver: A limit on steps, tokens or context is reached.
            EngineError: The engine failed more often than it may be retried.
        """

    @abstractmethod
    def record(self, action: Action, result: StepResult) -> None:
        """Say what followed an action: feedback, reward, whether the episode ended."""

    @abstractmethod
    def count(self, counters: Mapping[str, float]) -> None:
        """Add to the episode's counters."""


class AgentFlowBase(ABC):
    """How one episode is played. One instance serves many episodes at once: keep their state in ``run``."""

    @abstractmethod
    async def run(self, task: Task, ctx: FlowContext) -> float | None:
        """Play one episode. A number returned is added to the reward of the last step."""

    async def start(self) -> None:
        """Called once before the first episode."""

    def expect(self, tasks: Sequence[Task]) -> None:
        """Told which tasks are played next, in order; it may prepare them, but must not wait."""

    async def close(self) -> None:
        """Called once after the last episode, on every path."""


class BorrowedFlow(AgentFlowBase):
    """A flow that somebody else opens and closes, such as the collector of training beside that of evaluation."""

    def __init__(self, flow: AgentFlowBase) -> None:
        self._flow = flow

    async def run(self, task: Task, ctx: FlowContext) -> float | None:
        return await self._flow.run(task, ctx)

    def expect(self, tasks: Sequence[Task]) -> None:
        self._flow.expect(tasks)


class SingleStepFlow(AgentFlowBase):
    """One prompt, one action: single-turn RL as a special case. The reward comes from the run's reward functions."""

    async def run(self, task: Task, ctx: FlowContext) -> float | None:
        if not task.prompt:
            raise DataError(f"{task.where}: column 'prompt' is missing or empty.", "Give each row a prompt.")
        action = await ctx.generate(task.prompt)
        ctx.record(action, StepResult(None, terminated=True))
        return None
