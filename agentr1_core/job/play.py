"""How the run's episodes are played: environments built for each task, contexts around them, flows by row.

The job builder makes one ``FlowFactory``; each process calls it once. Tools are shared by all episodes, an
environment and its context policy serve one.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentr1_core.config.schema import Env, Named, Reward, RunConfig
from agentr1_core.context import ContextEnv, Rewrite
from agentr1_core.env import AgentEnv, EnvSource
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.errors import ConfigError, DataError, PluginError
from agentr1_core.flow import AgentFlowBase, FlowContext, SingleStepFlow
from agentr1_core.job.offers import accepts, build, check_arguments, find
from agentr1_core.reward import RewardFunction, RewardSum, score_function
from agentr1_core.task import Task
from agentr1_core.tool import BaseTool, ToolBox, ToolSource
from agentr1_core.tool_env import ToolEnv

if TYPE_CHECKING:
    from agentr1_core.plugins import PluginManager

#: ``agent_name`` of rows that mean the generic loop with whatever environment the run has.
GENERIC_LOOP = "agent_env_loop"


@dataclass(frozen=True, slots=True)
class MakeEnv:
    """Builds the environment of one episode: the run file's settings, overlaid by the row's ``env_kwargs``.

    Keys of ``env_kwargs`` that the environment's constructor does not take are left to its ``reset``, which sees the
    whole row. A row's list ``tools`` chooses among the run's tools. A source has its settings already, and sees the
    whole row.
    """

    env: Callable[..., AgentEnv] | EnvSource
    settings: Mapping[str, Any] = field(default_factory=dict)
    tools: ToolBox | None = None
    context: Callable[..., Any] | None = None
    context_settings: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, task: Task) -> AgentEnv:
        env = self.env.make(task) if isinstance(self.env, EnvSource) else self._build(self.env, task)
        return env if self.context is None else ContextEnv(env, self.context(**self.context_settings))

    def _build(self, env: Callable[..., AgentEnv], task: Task) -> AgentEnv:
        row = {name: value for name, value in task.env_kwargs.items() if name != "tools" and accepts(env, name)}
        arguments = {**self.settings, **row}
        if accepts(env, "tools"):
            arguments["tools"] = self._tools(task)
        return env(**arguments)

    def _tools(self, task: Task) -> ToolBox | Sequence[BaseTool]:
        box = self.tools or ToolBox([])
        wanted = task.env_kwargs.get("tools")
        if wanted is None:
            return box
        missing = [name for name in wanted if name not in box.by_name]
        if missing:
            raise DataError(
                f"{task.where}: env_kwargs wants the tool '{missing[0]}', which the run does not have.",
                f"Add it under `tools`; the run has: {', '.join(box.by_name) or 'none'}.",
            )
        return [box.by_name[name] for name in wanted]


class FlowByRow(AgentFlowBase):
    """Plays each row with the flow that its ``agent_name`` names, and with ``default`` where it names none."""

    def __init__(self, default: AgentFlowBase, by_name: Mapping[str, AgentFlowBase]) -> None:
        self.default = default
        self.by_name = dict(by_name)
        self._closing = AsyncExitStack()

    async def run(self, task: Task, ctx: FlowContext) -> float | None:
        return await self.by_name.get(task.agent_name or "", self.default).run(task, ctx)

    async def start(self) -> None:
        async with AsyncExitStack() as started:
            for flow in (self.default, *self.by_name.values()):
                await flow.start()
                started.push_async_callback(flow.close)
            self._closing = started.pop_all()

    def expect(self, tasks: Sequence[Task]) -> None:
        for flow in (self.default, *self.by_name.values()):
            flow.expect([task for task in tasks if self.by_name.get(task.agent_name or "", self.default) is flow])

    async def close(self) -> None:
        await self._closing.aclose()


@dataclass(frozen=True, slots=True)
class FlowFactory:
    """Makes the flow of a run."""

    default: Callable[[], AgentFlowBase]
    by_name: Mapping[str, Callable[[], AgentFlowBase]] = field(default_factory=dict)

    def __call__(self) -> AgentFlowBase:
        if not self.by_name:
            return self.default()
        return FlowByRow(self.default(), {name: make() for name, make in self.by_name.items()})


def build_tools(config: RunConfig, plugins: PluginManager) -> ToolBox | None:
    """The tools of the run, opened by the collector; ``None`` without any."""
    tools: list[BaseTool | ToolSource] = []
    for position, item in enumerate(config.tools):
        key = f"tools.{position}"
        offer = find(plugins, "tool", item.name, key)
        if isinstance(offer, BaseTool):
            if item.settings:
                raise ConfigError(f"`{key}`: the tool '{item.name}' has no settings.", f"Write it as `- {item.name}`.")
            tools.append(offer)
            continue
        made = build(offer, item.settings, key)
        if not isinstance(made, (BaseTool, ToolSource)):
            raise PluginError(
                f"`{key}`: '{item.name}' is a {type(made).__name__}, not a tool.",
                "Subclass BaseTool, or decorate a function with @tool.",
            )
        tools.append(made)
    return ToolBox(tools) if tools else None


def build_reward(items: Sequence[Reward], plugins: PluginManager) -> RewardSum | None:
    """The rewards on finished trajectories; ``None`` when the environment alone rewards."""
    functions: dict[str, RewardFunction] = {}
    weights: dict[str, float] = {}
    for position, item in enumerate(items):
        offer = find(plugins, "reward", item.name, f"reward.{position}")
        if not callable(offer):
            raise PluginError(f"`reward.{position}`: '{item.name}' cannot be called.", "Name a function.")
        name = item.name.rpartition(":")[2]
        if name in functions:
            raise ConfigError(f"`reward.{position}`: a reward named '{name}' is there already.", "Remove one of them.")
        takes_solution = accepts(offer, "solution_str") and not accepts(offer, "trajectory")
        functions[name] = score_function(offer) if takes_solution else offer
        weights[name] = item.weight
    return RewardSum(functions, weights) if functions else None


def build_flow(config: RunConfig, plugins: PluginManager, tools: ToolBox | None, tasks: Sequence[Task]) -> FlowFactory:
    """The flow of the run: its own, or the loop around its environment, and those that rows name."""
    rows: dict[str | None, list[Task]] = {None: []}
    for task in tasks:
        rows.setdefault(_player(task, config, plugins), []).append(task)
    if config.flow is not None:
        default = _flow(config.flow, plugins, tools, rows.pop(None), "flow")
    else:
        default = _loop(config.env or Env(), config, plugins, tools, rows.pop(None), "env")
    by_name: dict[str, Callable[[], AgentFlowBase]] = {}
    for name, mine in rows.items():
        if name in plugins.names("flow"):
            by_name[name] = _flow(Named(name=name), plugins, tools, mine, f"agent_name {name}")
        elif name is not None:
            by_name[name] = _loop(Named(name=name), config, plugins, tools, mine, f"agent_name {name}")
    return FlowFactory(default, by_name)


def _player(task: Task, config: RunConfig, plugins: PluginManager) -> str | None:
    """The flow or environment on offer that a row's ``agent_name`` picks; ``None`` for the run's own."""
    name, own = task.agent_name, config.flow or config.env
    if name is None or name == GENERIC_LOOP or (own is not None and name == own.name):
        return None
    if name in plugins.names("flow") or name in plugins.names("env"):
        return name
    if own is not None:
        return None
    raise DataError(
        f"{task.where}: no environment or flow is named '{name}', as its agent_name says.",
        "Set `env` or `flow` in the run file; it then plays the rows whose name is not on offer.",
    )


def _flow(
    named: Named, plugins: PluginManager, tools: ToolBox | None, tasks: Sequence[Task], key: str
) -> Callable[[], AgentFlowBase]:
    offer = find(plugins, "flow", named.name, key)
    _check_prompts(offer, tasks, named.name)
    settings = dict(named.settings)
    if tools is not None and accepts(offer, "tools"):
        settings["tools"] = tools
    elif tools is not None and key == "flow":
        raise _takes_no_tools(named.name, "flow")
    check_arguments(offer, named.settings, key, reserved=frozenset({"tools"} & settings.keys()))

    def make() -> AgentFlowBase:
        flow = offer(**settings)
        if not isinstance(flow, AgentFlowBase):
            raise PluginError(f"`{key}`: '{named.name}' is no AgentFlowBase.", "Subclass AgentFlowBase.")
        return flow

    return make


def _loop(
    named: Named, config: RunConfig, plugins: PluginManager, tools: ToolBox | None, tasks: Sequence[Task], key: str
) -> Callable[[], AgentFlowBase]:
    offer = find(plugins, "env", named.name, key)
    _check_prompts(offer, tasks, named.name)
    takes_tools = accepts(offer, "tools")
    if tools is not None and not takes_tools and key == "env":
        raise _takes_no_tools(named.name, "env")
    reserved = frozenset({"tools"}) if takes_tools else frozenset[str]()
    check_arguments(offer, named.settings, key, reserved=reserved, by_rows=_given_by_all(tasks))
    context, settings = None, {}
    if config.context is not None:
        context = find(plugins, "context", config.context.name, "context")
        settings = dict(config.context.settings)
        if context is Rewrite and isinstance(settings.get("rewrite"), str):
            settings["rewrite"] = find(plugins, "context", settings["rewrite"], "context.rewrite")
        build(context, settings, "context")  # says now what would otherwise fail in every episode
    if isinstance(offer, type) and issubclass(offer, EnvSource):
        build(offer, named.settings, key)  # so that a wrong setting is told now

        def make_loop() -> AgentFlowBase:
            source: EnvSource = build(offer, named.settings, key)
            return AgentEnvLoop(MakeEnv(source, {}, None, context, settings), source=source)

        return make_loop
    make_env = MakeEnv(offer, named.settings, tools, context, settings)
    return lambda: AgentEnvLoop(make_env)


def _check_prompts(offer: Any, tasks: Sequence[Task], name: str) -> None:
    """The built-in environment and flow show the task's prompt: say now which row has none."""
    if not (isinstance(offer, type) and issubclass(offer, (ToolEnv, SingleStepFlow))):
        return
    for task in tasks:
        if not task.prompt:
            near = difflib.get_close_matches("prompt", list(task), n=1)
            raise DataError(
                f"{task.where}: column 'prompt' is missing or empty; the row has: {', '.join(task) or 'no columns'}.",
                (f"Did you mean '{near[0]}'? " if near else "") + f"'{name}' shows it first; give each row one.",
            )


def _given_by_all(tasks: Sequence[Task]) -> frozenset[str]:
    """The keys that every row has in its ``env_kwargs``."""
    keys = [frozenset(task.env_kwargs) for task in tasks]
    return frozenset.intersection(*keys) if keys else frozenset()


def _takes_no_tools(name: str, key: str) -> ConfigError:
    return ConfigError(
        f"`tools` are set, but the {key} '{name}' takes none.",
        f"Remove `tools`, or use an {key} whose constructor has a parameter `tools` (such as `env: tools`).",
    )
