"""The generic loop that plays any environment: generate, step, record, until the episode ends.

The collector runs it for every task; users of ``AgentEnv`` never see it. It closes the environment on every path.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from agentr1_core.env import AgentEnv, EnvSource, close_env, reset_env, step_env
from agentr1_core.errors import EnvError
from agentr1_core.flow import AgentFlowBase, FlowContext
from agentr1_core.task import Task

_log = logging.getLogger(__name__)


class AgentEnvLoop(AgentFlowBase):
    """Joins generation with ``reset`` and ``step``.

    Args:
        make_env: Builds the environment of one episode. ``task.env_kwargs`` are the maker's to use.
        source: What ``make_env`` takes its environments from, where they share something; opened and closed with
            the loop.
        close_timeout_s: How long an environment may take to close before that counts as an error.
    """

    def __init__(
        self,
        make_env: Callable[[Task], AgentEnv],
        *,
        source: EnvSource | None = None,
        close_timeout_s: float = 30.0,
    ) -> None:
        self.make_env = make_env
        self.source = source
        self.close_timeout_s = close_timeout_s

    async def start(self) -> None:
        if self.source is not None:
            await self.source.start()

    def expect(self, tasks: Sequence[Task]) -> None:
        if self.source is not None:
            self.source.expect(tasks)

    async def close(self) -> None:
        if self.source is not None:
            await self.source.close()

    async def run(self, task: Task, ctx: FlowContext) -> float | None:
        env = self.make_env(task)
        try:
            async with _deadline(ctx.step_timeout_s):
                observation = await reset_env(env, task)
            while True:
                async with _deadline(ctx.step_timeout_s):
                    action = await ctx.generate(observation)
                    result = await step_env(env, action)
                ctx.record(action, result)
                if result.terminated or result.truncated or result.observation is None:
                    return None
                observation = result.observation
        finally:
            try:
                ctx.count(env.counters)
            finally:
                await self._close(env, ctx)

    async def _close(self, env: AgentEnv, ctx: FlowContext) -> None:
        # The episode is over and its data are good: a failure to clean up is counted and told, not raised.
        try:
            async with asyncio.timeout(self.close_timeout_s):
                await close_env(env)
        except Exception as error:
            ctx.count({"env/close_failed": 1})
            _log.warning("%s did not close: %s: %s", type(env).__name__, type(error).__name__, error)


@asynccontextmanager
async def _deadline(seconds: float | None) -> AsyncIterator[None]:
    """A turn's deadline. A ``TimeoutError`` of the environment's own, of a socket say, is a fault and no deadline."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise
        raise EnvError(f"The environment raised TimeoutError: {error}") from error
