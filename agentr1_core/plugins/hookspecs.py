"""The hooks a plugin may implement, on one page.

A plugin is a module that states ``agentr1_api_version = 1`` and implements some of these functions under
``@hookimpl``. The offering hooks name what it brings; the observer hooks are told what happens during a run.
Nothing here is ever called directly: ``PluginManager`` does that.
"""

# Hook specifications have no bodies by design:
# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    import typer

    from agentr1_core.mdp import Group, Step, Trajectory

#: The version of the contract between the core and its plugins; it grows when a change breaks plugins.
API_VERSION = 1
#: The entry-point group plugins register under, and the name of the pluggy project.
ENTRY_POINT_GROUP = "agentr1"

hookspec = pluggy.HookspecMarker(ENTRY_POINT_GROUP)
#: Marks a function of a plugin as the implementation of the hook with the same name.
hookimpl = pluggy.HookimplMarker(ENTRY_POINT_GROUP)

#: What an offering hook returns: each name with the object itself or a ``"package.module:Class"`` string, which is
#: imported when somebody asks for the name. Use strings for whatever needs a heavy import.
Offers = Mapping[str, Any]


@hookspec
def agentr1_engines() -> Offers:
    """Engines: subclasses of ``InferenceEngine``, or of ``ChatEngine`` for those that only answer in text."""


@hookspec
def agentr1_backends() -> Offers:
    """Training backends: subclasses of ``TrainingBackend``."""


@hookspec
def agentr1_tools() -> Offers:
    """Tools: subclasses of ``BaseTool`` or ``ToolSource``, or functions under ``@tool``."""


@hookspec
def agentr1_envs() -> Offers:
    """Environments: subclasses of ``AgentEnv``, or of ``EnvSource`` where they share something."""


@hookspec
def agentr1_flows() -> Offers:
    """Agent flows: subclasses of ``AgentFlowBase``."""


@hookspec
def agentr1_tool_formats() -> Offers:
    """Ways a model writes tool calls, for models that ``renderers`` does not know."""


@hookspec
def agentr1_estimators() -> Offers:
    """Advantage estimators."""


@hookspec
def agentr1_rewards() -> Offers:
    """Reward functions."""


@hookspec
def agentr1_recipes() -> Offers:
    """Recipes: ready runs that ``agentr1 train NAME`` starts."""


@hookspec
def agentr1_contexts() -> Offers:
    """Context policies: what an environment shows the model next."""


@hookspec
def agentr1_step(step: Step, trajectory_id: str) -> None:
    """A step was recorded. Called from the event loop, once for each step: return quickly."""


@hookspec
def agentr1_trajectory(trajectory: Trajectory) -> None:
    """An episode ended, failed ones included."""


@hookspec
def agentr1_group(group: Group) -> None:
    """All episodes of one task are in."""


@hookspec
def agentr1_update(metrics: Mapping[str, float], step: int) -> None:
    """The policy was updated; ``step`` counts updates from 1, ``metrics`` are that update's figures."""


@hookspec
def agentr1_cli(app: typer.Typer) -> None:
    """Add commands to the ``agentr1`` command line."""


#: Each kind of thing a plugin can offer, with the hook that offers it.
KINDS: Mapping[str, str] = {
    "engine": "agentr1_engines",
    "backend": "agentr1_backends",
    "tool": "agentr1_tools",
    "env": "agentr1_envs",
    "flow": "agentr1_flows",
    "tool_format": "agentr1_tool_formats",
    "estimator": "agentr1_estimators",
    "reward": "agentr1_rewards",
    "recipe": "agentr1_recipes",
    "context": "agentr1_contexts",
}
