"""The collector: plays many episodes at once and hands back groups of trajectories.

Training backends and ``agentr1 rollout`` call ``Rollouts.collect``. It bounds concurrency, keeps every deadline,
turns each failure into a counted trajectory with its cause, and never lets one episode take its group down silently.
"""

from __future__ import annotations

import asyncio
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from agentr1_core.env import finite_reward
from agentr1_core.episode import ChatPolicy, Episode, Policy, RolloutLimits
from agentr1_core.errors import EngineError, EnvError
from agentr1_core.flow import AgentFlowBase, EpisodeOver
from agentr1_core.mdp import Group, StopReason, Trajectory
from agentr1_core.reward import RewardSum
from agentr1_core.task import Task
from agentr1_core.tool import ToolBox


class RolloutHooks(Protocol):
    """Who is told of finished steps, trajectories and groups; a plugin manager's ``hook`` fits."""

    def agentr1_step(self, *, step: Any, trajectory_id: str) -> Any: ...
    def agentr1_trajectory(self, *, trajectory: Trajectory) -> Any: ...
    def agentr1_group(self, *, group: Group) -> Any: ...


@dataclass(frozen=True, slots=True)
class Play:
    """One episode to be played: a task, the group it is compared in, and its place there."""

    task: Task
    group_id: str
    member: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Collection:
    """What one ``collect`` call brought in."""

    groups: tuple[Group, ...]
    seconds: float
    #: Sums over all episodes, failed ones included.
    counters: Mapping[str, float] = field(default_factory=dict)

    @property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """Every trajectory that may be trained on."""
        return tuple(trajectory for group in self.groups for trajectory in group.trajectories)

    @property
    def failed(self) -> tuple[Trajectory, ...]:
        """Every episode that was left out, with its cause."""
        return tuple(trajectory for group in self.groups for trajectory in group.failed)

    def __repr__(self) -> str:
        # Short on purpose: asyncio writes out the result of a task when it restores signal handlers.
        return f"<Collection of {len(self.groups)} groups in {self.seconds:.1f} s>"


class Rollouts:
    """Plays episodes of one flow with one policy.

    Args:
        flow: How an episode is played.
        policy: The model in training; a ``ChatPolicy`` only plays.
        others: Further models by name, for flows that use several.
        reward: Rewards on finished trajectories.
        limits: What an episode may use.
        concurrency: Episodes in flight at most.
        min_group_size: A group with fewer usable trajectories is left out whole, and reported.
        seed: Makes sampling repeatable on engines that take seeds; ``None`` samples freely.
        tools: Started before the first episode and closed at the end.
        hooks: Told of every step, trajectory and group.
    """

    def __init__(
        self,
        flow: AgentFlowBase,
        policy: Policy | ChatPolicy,
        *,
        others: Mapping[str, Policy | ChatPolicy] | None = None,
        reward: RewardSum | None = None,
        limits: RolloutLimits | None = None,
        concurrency: int = 256,
        min_group_size: int = 2,
        seed: int | None = None,
        tools: ToolBox | None = None,
        hooks: RolloutHooks | None = None,
    ) -> None:
        self.flow = flow
        self.policy = policy
        self.reward = reward
        self.limits = limits or RolloutLimits()
        self.min_group_size = min_group_size
        self.tools = tools
        self.hooks = hooks
        self._policies = {"policy": policy, **(others or {})}
        self._concurrency = concurrency
        self._seed = seed if policy.engine.capabilities.seed else None
        self._n_collected = 0
        self._closing: AsyncExitStack | None = None

    async def start(self) -> None:
        """Start the engines, the tools and the flow; on failure what was started is closed again. Idempotent."""
        if self._closing is not None:
            return
        async with AsyncExitStack() as stack:
            for policy in self._policies.values():
                stack.push_async_callback(policy.engine.close)
                await policy.engine.start()
                if isinstance(policy, Policy):
                    policy.engine.require(logprobs=True)
                    if policy.sampling.truncates_support:
                        policy.engine.require(truncation=True)
            if self.tools is not None:
                await self.tools.start()
                stack.push_async_callback(self.tools.close)
            await self.flow.start()
            stack.push_async_callback(self.flow.close)
            self._closing = stack.pop_all()

    async def close(self) -> None:
        """Close the flow, the tools and the engines, each even if another fails to. Idempotent."""
        closing, self._closing = self._closing, None
        if closing is not None:
            await closing.aclose()

    async def collect(
        self, tasks: Sequence[Task], group_size: int = 1, *, stream: str | None = None, training: bool = True
    ) -> Collection:
        """Play every task ``group_size`` times.

        Args:
            tasks: One group for each.
            group_size: Trajectories in a group.
            stream: Names this collection in ids and seeds; numbered when left out. Evaluations are all named alike,
                so that two of them differ by the policy alone.
            training: Evaluation passes ``False``: groups of any size are kept, and of the
                hooks only ``agentr1_trajectory`` is told.

        Raises:
            EnvError: Every single episode failed; the causes are in the message.
        """
        if stream is None:
            stream = f"{self._n_collected}" if training else "eval"
        plays = [
            Play(task, f"{stream}/{position}", member)
            for position, task in enumerate(tasks)
            for member in range(group_size)
        ]
        return await self.collect_plays(plays, least=min(self.min_group_size, group_size), training=training)

    async def collect_plays(
        self, plays: Sequence[Play], *, least: int = 1, training: bool = True, may_all_fail: bool = False
    ) -> Collection:
        """Play given episodes; those of one ``group_id`` form a group, in the order of their first member.

        Callers that split a group over processes name its members themselves and pass ``least=1`` and
        ``may_all_fail=True``: other processes may have usable episodes.

        Raises:
            EnvError: Every single episode failed, unless ``may_all_fail``.
        """
        await self.start()
        start = time.monotonic()
        self._n_collected += training
        self.flow.expect([play.task for play in plays])
        gate = asyncio.Semaphore(self._concurrency)
        try:
            async with asyncio.TaskGroup() as running:
                tasks = [running.create_task(self._gated(gate, play, training)) for play in plays]
        except ExceptionGroup as failed:  # of hooks alone, since episodes return their failures
            raise failed.exceptions[0] from None
        members: dict[str, list[Trajectory]] = {}
        first: dict[str, Task] = {}
        for play, task in zip(plays, tasks, strict=True):
            members.setdefault(play.group_id, []).append(task.result())
            first.setdefault(play.group_id, play.task)
        least = least if training else 1
        groups = tuple(_group(group_id, first[group_id], played, least) for group_id, played in members.items())
        collection = Collection(groups, time.monotonic() - start, _total(groups))
        if plays and not collection.trajectories and not may_all_fail:
            raise EnvError(f"Every episode failed. {_causes(collection.failed)}", "Mend the first cause and run again.")
        if training and self.hooks is not None:
            for group in groups:
                self.hooks.agentr1_group(group=group)
        return collection

    async def _gated(self, gate: asyncio.Semaphore, play: Play, training: bool) -> Trajectory:
        async with gate:
            trajectory = _checked(await self.play(play.task, play.group_id, play.member))
        if self.hooks is not None:
            for step in trajectory.steps if training else ():
                self.hooks.agentr1_step(step=step, trajectory_id=trajectory.id)
            self.hooks.agentr1_trajectory(trajectory=trajectory)
        return trajectory

    async def play(self, task: Task, group_id: str, member: int = 0) -> Trajectory:
        """Play one episode. It always returns a trajectory; only cancellation is raised."""
        start = time.monotonic()
        identity = f"{group_id}/{member}"
        episode = Episode(identity, self._policies, self.limits, self._seeds(identity))
        bonus: float | None = None
        error: str | None = None
        try:
            async with asyncio.timeout(self.limits.episode_timeout_s):
                bonus = finite_reward(await self.flow.run(task, episode), f"{type(self.flow).__name__}.run")
            reason = episode.ended_by_env or StopReason.COMPLETED
        except EpisodeOver:
            reason = StopReason.COMPLETED  # the limit that the episode noted decides below
        except TimeoutError as caught:
            reason, error = StopReason.TIMEOUT, f"a deadline passed {_where(caught)}"
        except EngineError as caught:
            reason, error = StopReason.ENGINE_ERROR, str(caught)
        except asyncio.CancelledError:
            running = asyncio.current_task()
            if running is None or running.cancelling():
                raise
            # Nobody cancelled this episode: something that the flow waited for was cancelled.
            reason, error = StopReason.ENV_ERROR, "CancelledError: something the episode waited for was cancelled"
        except Exception as caught:
            reason, error = StopReason.ENV_ERROR, f"{type(caught).__name__}: {caught}"
        if episode.over is not None and not reason.is_failure:
            reason = episode.over.reason
            error = str(episode.over)
        try:
            steps = episode.steps(reason, bonus)
        except Exception as caught:  # the observation after a truncated episode cannot be rendered
            reason, error = StopReason.ENV_ERROR, f"{type(caught).__name__}: {caught}"
            steps = episode.steps(reason, None)
        trajectory = Trajectory(
            id=identity,
            group_id=group_id,
            task=task,
            steps=steps,
            stop_reason=reason,
            error=error,
            counters=dict(episode.counters),
            seconds=time.monotonic() - start,
        )
        return await self._rewarded(trajectory)

    async def _rewarded(self, trajectory: Trajectory) -> Trajectory:
        named = {"env": trajectory.ret} if trajectory.is_scorable else {}
        if self.reward is not None and trajectory.steps and not trajectory.stop_reason.is_failure:
            try:
                scores = await self.reward.score(trajectory)
            except Exception as caught:
                return replace(trajectory, stop_reason=StopReason.ENV_ERROR, error=str(caught))
            if scores:
                last = trajectory.steps[-1]
                last = replace(last, reward=(last.reward or 0.0) + sum(scores.values()))
                trajectory = replace(trajectory, steps=(*trajectory.steps[:-1], last))
                named |= scores
        return replace(trajectory, rewards=named)

    def _seeds(self, identity: str) -> Any:
        seed = self._seed

        def of_turn(turn: int) -> int | None:
            return None if seed is None else zlib.crc32(f"{seed}/{identity}/{turn}".encode())

        return of_turn


def _group(id: str, task: Task, played: Sequence[Trajectory], least: int) -> Group:
    """Usable and failed trajectories apart; too few usable ones fail with the group."""
    usable = tuple(trajectory for trajectory in played if not trajectory.stop_reason.is_failure)
    failed = tuple(trajectory for trajectory in played if trajectory.stop_reason.is_failure)
    if len(usable) < least:
        why = f"left out: only {len(usable)} of the group's {len(played)} episodes are usable, {least} are needed"
        left_out = tuple(replace(t, stop_reason=StopReason.ABORTED, error=why) for t in usable)
        usable, failed = (), (*left_out, *failed)
    return Group(id, task, usable, failed)


def _checked(trajectory: Trajectory) -> Trajectory:
    """An episode without a single step has nothing to train on: a failure with the cause it stopped for."""
    if trajectory.steps or trajectory.stop_reason.is_failure:
        return trajectory
    cause = trajectory.error or "the flow returned without generating"
    return replace(
        trajectory,
        stop_reason=StopReason.ENV_ERROR,
        error=f"no step was taken ({trajectory.stop_reason.value}): {cause}",
    )


def _total(groups: Sequence[Group]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for group in groups:
        for trajectory in (*group.trajectories, *group.failed):
            total.update(trajectory.counters)
            total[f"stop/{trajectory.stop_reason.value}"] += 1
    return dict(total)


def _causes(failed: Sequence[Trajectory]) -> str:
    causes = Counter(trajectory.error or trajectory.stop_reason.value for trajectory in failed)
    return "; ".join(f"{count} times: {cause}" for cause, count in causes.most_common(3))


def _where(error: BaseException) -> str:
    """The place in the flow or environment where a deadline struck."""
    # asyncio.timeout turns the cancellation that struck into a TimeoutError; the place is where that struck.
    struck = error.__cause__ or error.__context__ or error
    frames = [frame for frame in traceback.extract_tb(struck.__traceback__) if "asyncio" not in frame.filename]
    return f"in {frames[-1].name} ({frames[-1].filename}:{frames[-1].lineno})" if frames else "in the flow"
