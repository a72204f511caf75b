"""What this distribution offers to agentr1. Nothing heavy is imported before it is used."""

from collections.abc import Mapping

from agentr1_core.plugins import hookimpl

agentr1_api_version = 1


@hookimpl
def agentr1_recipes() -> Mapping[str, str]:
    """Recipes by name."""
    return {
        "quickstart": "agentr1_recipes.quickstart.recipe:Quickstart",
        "alfworld": "agentr1_recipes.alfworld.recipe:Alfworld",
        "household": "agentr1_recipes.household.recipe:Household",
    }


@hookimpl
def agentr1_envs() -> Mapping[str, str]:
    """Environments by name."""
    return {
        "alfworld": "agentr1_recipes.alfworld.env:AlfworldGames",
        "household": "agentr1_recipes.household.env:HouseholdEnv",
        "adding": "agentr1_recipes.quickstart.env:AddingEnv",
        "gem": "agentr1_recipes.bridges.gem_env:GemEnv",
        "gymnasium": "agentr1_recipes.bridges.gymnasium_env:GymnasiumEnv",
        "openenv": "agentr1_recipes.bridges.openenv_env:OpenEnvEnv",
        "reasoning_gym": "agentr1_recipes.bridges.reasoning_gym_env:ReasoningGymEnv",
        "textarena": "agentr1_recipes.bridges.textarena_env:TextArenaEnv",
    }
