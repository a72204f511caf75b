"""What the core itself offers, as a plugin like any other; ``PluginManager.discover`` loads it first.

Everything is named as a string and imported at use, so that listing plugins stays fast.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentr1_core.plugins import hookimpl

agentr1_api_version = 1


@hookimpl
def agentr1_estimators() -> Mapping[str, str]:
    """Credit estimators; ``agentr1_core.credit.ESTIMATORS`` under the same names."""
    return {
        "grpo": "agentr1_core.credit:GRPO",
        "dr_grpo": "agentr1_core.credit:DrGRPO",
        "rloo": "agentr1_core.credit:RLOO",
        "reinforce_pp": "agentr1_core.credit:ReinforcePP",
        "reinforce_pp_baseline": "agentr1_core.credit:ReinforcePPBaseline",
        "step_grpo": "agentr1_core.credit:StepGRPO",
        "reinforce": "agentr1_core.credit:Reinforce",
        "gigpo": "agentr1_core.credit:GiGPO",
        "step_gae": "agentr1_core.credit:StepGAE",
        "token_gae": "agentr1_core.credit:TokenGAE",
        "distill": "agentr1_core.credit:Distill",
    }


@hookimpl
def agentr1_rewards() -> Mapping[str, str]:
    """Rewards that compare the final answer with the ground truth."""
    return {
        "exact_match": "agentr1_core.reward:exact_match",
        "contains_answer": "agentr1_core.reward:contains_answer",
        "math_answer": "agentr1_core.reward:math_answer",
    }


@hookimpl
def agentr1_envs() -> Mapping[str, str]:
    """The multi-turn tool environment."""
    return {"tools": "agentr1_core.tool_env:ToolEnv"}


@hookimpl
def agentr1_flows() -> Mapping[str, str]:
    """Single-turn RL."""
    return {"single_step": "agentr1_core.flow:SingleStepFlow"}


@hookimpl
def agentr1_contexts() -> Mapping[str, str]:
    """Context policies; ``agentr1_core.context.CONTEXT_POLICIES`` under the same names."""
    return {
        "append": "agentr1_core.context:Append",
        "keep_last": "agentr1_core.context:KeepLast",
        "drop_observations": "agentr1_core.context:DropObservations",
        "summarise": "agentr1_core.context:Summarise",
        "rewrite": "agentr1_core.context:Rewrite",
    }


@hookimpl
def agentr1_tool_formats() -> Mapping[str, str]:
    """Ways to write a tool call, for models that ``renderers`` does not know."""
    return {"hermes": "agentr1_core.tool_format:HermesFormat"}
