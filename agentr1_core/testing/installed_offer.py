"""The matching kit for what a plugin offers, filled in from a run file where the plugin alone does not say enough.

``pytest --agentr1 NAME`` comes here. What only its author knows (answers that solve a task, a reference for the
log-probs) is left out, so a plugin's own tests should subclass the kit and give that too.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from agentr1_core.config import RunConfig, load_config
from agentr1_core.env import AgentEnv, EnvWrapper
from agentr1_core.errors import PluginError
from agentr1_core.job import build_job
from agentr1_core.job.build import find_recipe
from agentr1_core.job.material import find_model, load_train_and_eval
from agentr1_core.job.offers import is_chat_engine
from agentr1_core.job.play import build_flow, build_tools
from agentr1_core.plugins import PluginManager
from agentr1_core.testing.backend_kit import BackendKit
from agentr1_core.testing.chat_engine_kit import ChatEngineKit
from agentr1_core.testing.engine_kit import EngineKit
from agentr1_core.testing.env_kit import EnvKit
from agentr1_core.testing.example_arguments import example_calls
from agentr1_core.testing.rules import rule
from agentr1_core.testing.tool_kit import ToolKit
from agentr1_core.tool import BaseTool, ToolBox, ToolContext

if TYPE_CHECKING:
    from agentr1_core.task import Task

#: Said until the episode ends, where nobody knows a better answer.
SHRUG = "I do not know."


@dataclass(frozen=True, slots=True)
class Offered:
    """What is tested, and what is known about it."""

    kind: str
    name: str
    plugins: PluginManager
    #: The run file, if there is one.
    run: RunConfig | None

    @property
    def target(self) -> Any:
        """The class, or a tool that is there already; imported now, which may take seconds.

        Raises:
            PluginError: The name is not on offer, or cannot be imported.
        """
        return self.plugins.get(self.kind, self.name)

    def needs_run(self) -> RunConfig:
        """The run file.

        Raises:
            PluginError: There is none.
        """
        if self.run is None:
            raise PluginError(
                f"To test the {self.kind} '{self.name}', it must be known how it is built.",
                "Say --agentr1-run with a run file or recipe that uses it, such as --agentr1-run quickstart.",
            )
        return self.run


def kits_of(names: Sequence[str], run: str | None) -> dict[str, type]:
    """A test class for each name.

    Args:
        names: As ``--agentr1`` takes them: ``calculator``, ``tool:calculator``, ``tool:agentr1-tools:calculator``.
        run: A run file or a recipe's name.

    Raises:
        AgentR1Error: A name is not on offer, of a kind without a kit, or more must be known about it.
    """
    plugins = PluginManager.discover()
    config = load_config(run, [], plugins) if run is not None else None
    kits: dict[str, type] = {}
    for each in names:
        kind, name = _split(each, plugins)
        kit = KITS[kind](Offered(kind, name, plugins, config))
        title = f"Test_{kind}_{name.rpartition(':')[2]}"
        kits[title] = type(title, (kit,), {"__doc__": f"The {kind} '{name}'."})
    return kits


def _split(text: str, plugins: PluginManager) -> tuple[str, str]:
    """The kind and the name; the kind may be left out where only one has the name."""
    kind, colon, name = text.partition(":")
    if colon and kind in KITS:
        return kind, name
    found = [each for each in KITS if text in plugins.names(each)]
    if len(found) == 1:
        return found[0], text
    known = [f"{each}:{offer}" for each in KITS for offer in plugins.names(each)]
    raise PluginError(
        f"'{text}' is offered as {' and as '.join(found)}." if found else f"Nothing that has a kit is named '{text}'.",
        f"Say one of: {', '.join(known)}.",
    )


def _tool_kit(offered: Offered) -> type:
    target = offered.target
    used = [] if offered.run is None else [item for item in offered.run.tools if item.name == offered.name]

    def make() -> BaseTool:
        if isinstance(target, BaseTool):
            return target
        made: BaseTool = target(**(used[0].settings if used else {}))
        return made

    try:
        calls, known = example_calls(make())
    except TypeError as error:
        raise PluginError(
            f"The tool '{offered.name}' cannot be built: {error}.",
            "Say --agentr1-run with a run file whose `tools` give its settings.",
        ) from error

    task = None if offered.run is None else _first_task(offered.run, offered.plugins)

    class InstalledTool(ToolKit):
        calls_are_known = known

        def make_tool(self) -> BaseTool:
            return make()

        def good_calls(self) -> Sequence[dict[str, Any]]:
            return calls

        def context(self) -> ToolContext:
            if task is None:
                return ToolContext()
            return ToolContext(task, task.tools_kwargs.get(make().name) or {})

    return InstalledTool


def _first_task(config: RunConfig, plugins: PluginManager) -> Task:
    train, held_out = load_train_and_eval(config, find_recipe(config, plugins))
    return [*train, *held_out][0]


class _WithTools(EnvWrapper):
    """Opens the run's tools for one episode, as the collector does for all of them."""

    def __init__(self, env: AgentEnv, tools: ToolBox) -> None:
        super().__init__(env)
        self._tools = tools

    async def reset(self, task: Task) -> Any:
        await self._tools.start()
        return await super().reset(task)

    async def close(self) -> None:
        await super().close()
        await self._tools.close()


class _WithSource(EnvWrapper):
    """Opens the loop around an environment for one episode, as the collector does for all of them."""

    def __init__(self, loop: Any, task: Task) -> None:
        super().__init__(loop.make_env(task))
        self._loop = loop

    async def reset(self, task: Task) -> Any:
        await self._loop.start()
        return await super().reset(task)

    async def close(self) -> None:
        await super().close()
        await self._loop.close()


def _env_kit(offered: Offered) -> type:
    config, plugins = offered.needs_run(), offered.plugins
    named = config.env.name if config.env is not None else "tools"
    if named != offered.name:
        raise PluginError(
            f"The run file plays the environment '{named}', not '{offered.name}'.", "Name a run file that uses it."
        )
    task = _first_task(config, plugins)
    tools = build_tools(config, plugins)
    make_flow: Callable[[], Any] = build_flow(config, plugins, tools, [task])

    class InstalledEnv(EnvKit):
        def make_env(self) -> AgentEnv:
            env: AgentEnv = _WithSource(make_flow(), task)
            return env if tools is None else _WithTools(env, tools)

        def task(self) -> dict[str, Any]:
            return dict(task)

        def answers(self) -> Sequence[str]:
            return [SHRUG] * len(self.play([SHRUG] * self.max_turns).results)

        @rule("env/contract")
        def test_given_answers_play_to_the_end(self) -> None:
            last = self.play([SHRUG] * self.max_turns).results[-1]
            if not (last.terminated or last.truncated):
                pytest.skip(f"{self.max_turns} answers without any sense do not end it; give your own in a subclass")

    return InstalledEnv


def _engine_kit(offered: Offered) -> type:
    config, target = offered.needs_run(), offered.target
    if is_chat_engine(target):
        return _chat_engine_kit(offered, config)
    folder = Path(tempfile.mkdtemp(prefix="agentr1-kit-"))
    model = find_model(config, find_recipe(config, offered.plugins), folder)
    own = config.engine.settings if config.engine.name == offered.name else {}
    settings_model = getattr(target, "Settings", None)

    class InstalledEngine(EngineKit):
        def make_engine(self) -> Any:
            settings: Mapping[str, Any] = {"model": model, **own}
            return target(**settings) if settings_model is None else target(settings_model(**settings))

    return InstalledEngine


def _chat_engine_kit(offered: Offered, config: RunConfig) -> type:
    target = offered.target
    if config.engine.name != offered.name:
        raise PluginError(
            f"The run file plays with the engine '{config.engine.name}', not '{offered.name}'.",
            "Name a run file whose `engine` says which service to ask.",
        )
    settings, settings_model = config.engine.settings, getattr(target, "Settings", None)

    class InstalledChatEngine(ChatEngineKit):
        def make_engine(self) -> Any:
            return target(**settings) if settings_model is None else target(settings_model(**settings))

    return InstalledChatEngine


def _backend_kit(offered: Offered) -> type:
    config = offered.needs_run()
    if config.backend.name != offered.name:
        raise PluginError(
            f"The run file trains with '{config.backend.name}', not '{offered.name}'.", "Name a run file that uses it."
        )

    class InstalledBackend(BackendKit):
        def make_backend(self) -> Any:
            return offered.target()

        def make_job(self, run_dir: Path) -> Any:
            job = build_job(config, offered.plugins, run_dir)
            # Two updates on a few tasks tell as much about the contract as the whole run.
            return replace(job, updates=2, warm_start=None, eval_every=0, eval_tasks=job.eval_tasks[:4])

    return InstalledBackend


def _estimator_kit(offered: Offered) -> type:
    from agentr1_core.testing.estimator_kit import EstimatorKit  # needs hypothesis

    target = offered.target
    own = {} if offered.run is None else offered.run.algorithm.estimator.settings

    class InstalledEstimator(EstimatorKit):
        def make_estimator(self, **settings: Any) -> Any:
            return target({**own, **settings})

    return InstalledEstimator


def _format_kit(offered: Offered) -> type:
    from agentr1_core.testing.format_kit import ToolFormatKit  # needs hypothesis

    target = offered.target

    class InstalledFormat(ToolFormatKit):
        def make_format(self) -> Any:
            return target()

    return InstalledFormat


#: How the kit of each kind is made.
KITS: Mapping[str, Callable[[Offered], type]] = {
    "tool": _tool_kit,
    "env": _env_kit,
    "engine": _engine_kit,
    "backend": _backend_kit,
    "estimator": _estimator_kit,
    "tool_format": _format_kit,
}
