"""WebShop's own 1,000 products, read from the folder that AGENTR1_DATA names."""

import gzip
import json
import os
import random
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from agentr1_core.testing import play
from agentr1_recipes.webshop.env import WebShopEnv
from agentr1_recipes.webshop.goal import Goal, split_goals
from agentr1_recipes.webshop.loader import open_catalogue, read_goals
from agentr1_recipes.webshop.oracle import expert, random_policy
from agentr1_recipes.webshop.recipe import WebShop
from agentr1_recipes.webshop.reward import score_purchase

DATA = Path(os.environ.get("AGENTR1_DATA", "")) / "webshop"
pytestmark = pytest.mark.skipif(
    not list(DATA.glob("items_shuffle*.json*")), reason="AGENTR1_DATA names no folder with webshop/items_shuffle*.json"
)


@pytest.fixture(scope="module")
def catalogue(tmp_path_factory):
    cache = str(tmp_path_factory.mktemp("cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", cache)
        return open_catalogue(str(DATA))


@pytest.fixture(scope="module")
def goals(catalogue):
    return read_goals(str(DATA), "synthetic")


def test_all_of_it_is_read(catalogue, goals, real_data):
    human = read_goals(str(DATA), "human")
    real_data("webshop", f"{len(catalogue.products):,} products, {len(human)} human and {len(goals):,} templated goals")
    assert len(catalogue.products) == 1000
    assert (len(human), len(goals)) == (13, 6910)
    assert {goal.asin for goal in goals} <= set(catalogue.by_asin)
    assert all(catalogue.by_asin[goal.asin].price <= goal.price_upper for goal in goals)


def test_the_right_product_gets_everything_and_a_shoe_nothing(catalogue, goals):
    rng = random.Random(0)
    shoes = [product for product in catalogue.products if "Shoes" in product.product_category]
    strangers = 0
    for goal in rng.sample(goals, 200):
        product = catalogue.by_asin[goal.asin]
        chosen = dict(zip(sorted(product.options), goal.options, strict=True))
        assert score_purchase(product, chosen, goal).reward == 1.0
        if "Clothing" not in goal.product_category:
            scores = [score_purchase(shoe, {}, goal).reward for shoe in shoes]
            assert statistics.median(scores) == 0.0
            strangers += 1
    assert strangers > 30


@pytest.mark.parametrize("kind", ["human", "synthetic"])
def test_the_expert_and_chance(catalogue, kind):
    tasks = WebShop(str(DATA), kind).tasks("test", 25, 0)
    found, by_chance = [], []
    rng = random.Random(0)
    for task in tasks:
        goal = Goal.from_row(task["goal"], task.where)
        found.append(play(WebShopEnv(), task, expert(goal, catalogue.by_asin[goal.asin])).ret)
        by_chance.append(play(WebShopEnv(), task, random_policy(rng)).ret)
    assert statistics.mean(found) == 1.0
    assert statistics.mean(by_chance) < 0.2


def test_the_split_of_all_human_goals():
    with gzip.open(DATA / "human_goals_12087_texts.json.gz", "rt") as file:
        texts = json.load(file)
    blank = Goal("", "A", "", "", "", (), ())
    splits = split_goals([replace(blank, instruction=text) for text in texts])
    assert {name: len(split) for name, split in splits.items()} == {"test": 500, "eval": 1000, "train": 10587}
