"""What this distribution offers to agentr1. Nothing heavy is imported before it is used."""

from collections.abc import Mapping

from agentr1_core.plugins import hookimpl

agentr1_api_version = 1


@hookimpl
def agentr1_recipes() -> Mapping[str, str]:
    """Recipes by name."""
    return {"quickstart": "agentr1_recipes.quickstart.recipe:Quickstart"}


@hookimpl
def agentr1_envs() -> Mapping[str, str]:
    """Environments by name."""
    return {"adding": "agentr1_recipes.quickstart.env:AddingEnv"}
