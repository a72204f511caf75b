"""Deliberately poor demonstrations: how actions are written, and in half of the cases not the right one.

They teach a fresh model the language of the shop and leave plenty to learn; the recipe warm-starts on them. Prompts are
those of a context that keeps the last turn (``context: {name: keep_last, k: 1}``).
"""

from __future__ import annotations

import random
from typing import Any

from agentr1_core.mdp import Message
from agentr1_recipes.webshop.env import SYSTEM, show
from agentr1_recipes.webshop.goal import Goal
from agentr1_recipes.webshop.oracle import clickables, expert
from agentr1_recipes.webshop.shop import Page, Shop

_LONGEST = 6


def demonstrate(shop: Shop, goal: Goal, rng: random.Random, share_bad: float = 0.5) -> dict[str, Any]:
    """One row of ``prompt`` and ``completion`` at a random moment of a random visit."""
    opening = (SYSTEM, show(shop, Page(), goal.instruction))
    right = expert(goal, shop.catalogue.by_asin[goal.asin])
    page, turn = Page(), list[Message]()
    n_before = rng.randrange(_LONGEST)
    while True:
        shown = show(shop, page, goal.instruction)
        good = right(str(shown["content"]))
        if good.startswith("search["):
            good = f"search[{_keywords(goal, rng)}]"
        said = _careless(str(shown["content"]), goal, rng) if rng.random() < share_bad else good
        after = shop.visit(page, said)
        if n_before == 0 or after is None or after.kind == "bought":
            return {"prompt": [*opening, *turn], "completion": [{"role": "assistant", "content": said}]}
        page, n_before = after, n_before - 1
        turn = [{"role": "assistant", "content": said}, show(shop, page, goal.instruction)]


def _careless(shown: str, goal: Goal, rng: random.Random) -> str:
    can = clickables(shown)
    return f"click[{rng.choice(can)}]" if can else f"search[{_keywords(goal, rng)}]"


def _keywords(goal: Goal, rng: random.Random) -> str:
    """What is looked for, with some of its traits."""
    return " ".join([*(trait for trait in goal.attributes if rng.random() < 0.5), goal.query])
