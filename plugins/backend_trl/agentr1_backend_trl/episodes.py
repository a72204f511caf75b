"""What is played, and by whom: the flow built from an environment, a flow or tools, and the player that runs it.

The trainer makes one ``Player``. It owns the event loop and the rollouts of training and of evaluation, which share
one engine. It collects episodes and knows nothing about gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_core.blocking import BlockingLoop
from agentr1_core.context import ContextEnv, ContextPolicy
from agentr1_core.engine import InferenceEngine, SamplingParams, WeightSource
from agentr1_core.env import AgentEnv
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import Policy, RolloutLimits
from agentr1_core.errors import ConfigError
from agentr1_core.flow import AgentFlowBase, BorrowedFlow
from agentr1_core.render import ChatRenderer, create_chat_renderer
from agentr1_core.reward import RewardSum
from agentr1_core.rollout import Collection, Play, Rollouts
from agentr1_core.task import Task
from agentr1_core.tool import BaseTool, ToolBox, ToolSource, tool
from agentr1_core.tool_env import ToolEnv

EnvMaker = Callable[[Task], AgentEnv]


@dataclass(frozen=True, slots=True)
class Playable:
    """A flow, and the tools that must be open while it runs."""

    flow: AgentFlowBase
    tools: ToolBox | None = None


def make_playable(
    *,
    env: type[AgentEnv] | EnvMaker | None,
    flow: type[AgentFlowBase] | AgentFlowBase | None,
    tools: Sequence[BaseTool | ToolSource | Callable[..., Any]] | ToolBox | None,
    context: Callable[[], ContextPolicy] | None,
) -> Playable:
    """The flow of a run.

    Args:
        env: A class, made anew for each episode with the row's ``env_kwargs``, or a function from the task to one.
        flow: A flow, or its class. ``tools`` given beside it or beside ``env`` are opened and closed with the run.
        tools: Alone, they make a ``ToolEnv``.
        context: Makes the context policy of each episode.

    Raises:
        ConfigError: Not exactly one of them says what to play, or an environment instance was given.
    """
    box = None
    if tools is not None:
        box = tools if isinstance(tools, ToolBox) else ToolBox([_as_tool(item) for item in tools])
    if env is not None and flow is not None:
        raise ConfigError("Both `env` and `flow` were given.", "A flow plays its own environments: give one of them.")
    if flow is not None:
        if context is not None:
            raise ConfigError("`context` was given with `flow`.", "A flow decides what the model sees by itself.")
        return Playable(flow() if isinstance(flow, type) else flow, box)
    if isinstance(env, AgentEnv):
        raise ConfigError(
            "`env` is an instance, but every episode needs one of its own.",
            f"Pass the class ({type(env).__name__}), or a function from the task to an environment.",
        )
    if env is not None:
        make: EnvMaker = _maker_of(env)
    elif box is not None:
        opened = box

        def make(task: Task) -> AgentEnv:
            return ToolEnv(opened)
    else:
        raise ConfigError(
            "Nothing to play: none of `env`, `flow` and `tools` was given.",
            "Pass `env=MyEnv`, `flow=MyFlow()` or `tools=[...]`.",
        )
    if context is None:
        return Playable(AgentEnvLoop(make), box)
    policy, inner = context, make
    return Playable(AgentEnvLoop(lambda task: ContextEnv(inner(task), policy())), box)


def _maker_of(env: type[AgentEnv] | EnvMaker) -> EnvMaker:
    if isinstance(env, type):
        cls = env
        return lambda task: cls(**task.env_kwargs)
    return env


def _as_tool(item: BaseTool | ToolSource | Callable[..., Any]) -> BaseTool | ToolSource:
    return item if isinstance(item, (BaseTool, ToolSource)) else tool(item)


def as_renderer(renderer: Any, tokenizer: Any, template_kwargs: dict[str, Any]) -> ChatRenderer:
    """A renderer from an instance, a name, or a name with template arguments."""
    if isinstance(renderer, ChatRenderer):
        return renderer
    name, more = renderer if isinstance(renderer, tuple) else (renderer, {})
    return create_chat_renderer(tokenizer, name=name, template_kwargs={**template_kwargs, **more})


def sampling_from_args(args: Any) -> SamplingParams:
    """The sampling parameters that ``GRPOConfig`` names; ``max_completion_length`` bounds one action.

    Raises:
        ConfigError: One of them is out of range.
    """
    try:
        return SamplingParams(
            max_tokens=args.max_completion_length,
            temperature=args.temperature,
            top_p=args.top_p,
            top_k=max(args.top_k or 0, 0),
            min_p=args.min_p or 0.0,
        )
    except ValueError as error:
        raise ConfigError(f"GRPOConfig: {error}") from error


class Player:
    """Plays episodes with one engine from synchronous code."""

    def __init__(
        self,
        playable: Playable,
        engine: InferenceEngine,
        renderer: ChatRenderer,
        sampling: SamplingParams,
        eval_sampling: SamplingParams,
        *,
        reward: RewardSum | None,
        limits: RolloutLimits,
        concurrency: int,
        seed: int | None,
        hooks: Any,
    ) -> None:
        self.engine = engine

        def rollouts(flow: AgentFlowBase, params: SamplingParams, tools: ToolBox | None) -> Rollouts:
            return Rollouts(
                flow,
                Policy(engine, renderer, params),
                reward=reward,
                limits=limits,
                concurrency=concurrency,
                seed=seed,
                tools=tools,
                hooks=hooks,
            )

        self._train = rollouts(playable.flow, sampling, playable.tools)
        self._eval = rollouts(BorrowedFlow(playable.flow), eval_sampling, None)
        self._loop: BlockingLoop | None = None

    def play(self, plays: Sequence[Play], *, training: bool) -> Collection:
        """Play episodes; those that fail are in the groups' ``failed``, even if all do."""

        async def work() -> Collection:
            await self._train.start()  # flow, tools and engine are opened here once, for evaluation too
            rollouts = self._train if training else self._eval
            return await rollouts.collect_plays(plays, training=training, may_all_fail=True)

        found: Collection = self._run(work())
        return found

    def take_weights(self, weights: WeightSource, version: int) -> None:
        """Give the engine new weights."""

        async def update() -> None:
            await self._train.start()
            await self.engine.update_weights(weights, version)

        self._run(update())

    def rest(self) -> None:
        """Tell the engine that nothing is asked for until the next call."""
        if self._loop is not None:
            self._run(self.engine.rest())

    def close(self) -> None:
        """Close flow, tools and engine; the next call opens them again."""
        loop, self._loop = self._loop, None
        if loop is None:
            return
        try:
            loop.run(self._train.close())
        finally:
            loop.close()

    def _run(self, work: Any) -> Any:
        if self._loop is None:
            self._loop = BlockingLoop()
        return self._loop.run(work)
