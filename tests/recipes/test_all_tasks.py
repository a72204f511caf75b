"""`agentr1 eval` plays all tasks of a split: recipes with a set of their own say how many there are."""

from __future__ import annotations

import pytest

from agentr1_core.plugins import PluginManager

PLUGINS = PluginManager.discover()


@pytest.mark.parametrize("name", ["gsm8k", "multihop", "papers", "webshop", "alfworld"])
def test_a_recipe_counts_the_tasks_of_each_split(name):
    recipe = PLUGINS.get("recipe", name)()
    for split in recipe.splits:
        n = recipe.n_tasks(split)
        assert n > 0
        assert len(recipe.tasks(split, n + 100, seed=0)) == n
        assert len(recipe.tasks(split, n - 1, seed=0)) == n - 1


@pytest.mark.parametrize("name", ["quickstart", "household"])
def test_a_recipe_that_makes_tasks_without_end_has_no_number(name):
    recipe = PLUGINS.get("recipe", name)()
    assert recipe.n_tasks("eval") is None
