"""What this distribution offers to agentr1. Nothing heavy is imported before it is used."""

from collections.abc import Mapping

from agentr1_core.plugins import hookimpl

agentr1_api_version = 1


@hookimpl
def agentr1_recipes() -> Mapping[str, str]:
    """Recipes by name."""
    return {
        "alfworld": "agentr1_recipes.alfworld.recipe:Alfworld",
        "gsm8k": "agentr1_recipes.gsm8k.recipe:GSM8K",
        "household": "agentr1_recipes.household.recipe:Household",
        "multihop": "agentr1_recipes.multihop.recipe:MultiHop",
        "papers": "agentr1_recipes.papers.recipe:Papers",
        "quickstart": "agentr1_recipes.quickstart.recipe:Quickstart",
        "webshop": "agentr1_recipes.webshop.recipe:WebShop",
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
        "papers": "agentr1_recipes.papers.env:PaperSearchEnv",
        "reasoning_gym": "agentr1_recipes.bridges.reasoning_gym_env:ReasoningGymEnv",
        "textarena": "agentr1_recipes.bridges.textarena_env:TextArenaEnv",
        "webshop": "agentr1_recipes.webshop.env:WebShopEnv",
    }


@hookimpl
def agentr1_rewards() -> Mapping[str, str]:
    """Rewards on whole episodes, beside those of the environments, by name."""
    return {
        "answer_format": "agentr1_recipes.multihop.reward:answer_format",
        "gsm8k_flexible": "agentr1_recipes.gsm8k.reward:gsm8k_flexible",
        "gsm8k_strict": "agentr1_recipes.gsm8k.reward:gsm8k_strict",
        "paper_recall": "agentr1_recipes.papers.reward:paper_recall",
        "webshop_success": "agentr1_recipes.webshop.reward:webshop_success",
    }


@hookimpl
def agentr1_tools() -> Mapping[str, str]:
    """Tools by name."""
    return {"passages": "agentr1_recipes.multihop.tools:PassageSearch"}
