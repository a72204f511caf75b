"""agentr1: train LLM agents by step-level reinforcement learning.

This is the flat public face: what tool, environment and flow authors need. Engines, backends, estimators and the rest
live in their own modules and plugins. Importing it loads no framework.
"""

from importlib.metadata import version as _version

from agentr1_core.context import Append, ContextEnv, ContextPolicy, DropObservations, KeepLast, Rewrite, Summarise
from agentr1_core.env import AgentEnv, EnvSource, EnvWrapper, StepResult
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import Policy, RolloutLimits
from agentr1_core.errors import AgentR1Error
from agentr1_core.flow import AgentFlowBase, EpisodeOver, FlowContext, SingleStepFlow
from agentr1_core.mdp import Action, Group, Message, Observation, Step, StopReason, Trajectory
from agentr1_core.rollout import Rollouts
from agentr1_core.task import Task
from agentr1_core.tool import BaseTool, ToolContext, ToolError, ToolResponse, ToolSource, tool
from agentr1_core.tool_env import ToolEnv

__all__ = [
    "Action",
    "AgentEnv",
    "AgentEnvLoop",
    "AgentFlowBase",
    "AgentR1Error",
    "Append",
    "BaseTool",
    "ContextEnv",
    "ContextPolicy",
    "DropObservations",
    "EnvSource",
    "EnvWrapper",
    "EpisodeOver",
    "FlowContext",
    "Group",
    "KeepLast",
    "Message",
    "Observation",
    "Policy",
    "Rewrite",
    "RolloutLimits",
    "Rollouts",
    "SingleStepFlow",
    "Step",
    "StepResult",
    "StopReason",
    "Summarise",
    "Task",
    "ToolContext",
    "ToolEnv",
    "ToolError",
    "ToolResponse",
    "ToolSource",
    "Trajectory",
    "tool",
]

__version__ = _version("agentr1")
