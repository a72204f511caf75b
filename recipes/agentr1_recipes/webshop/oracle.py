"""Players without a model: an expert that knows the goal, and a random one.

Each is a function from the prompt's text to an action; ``agentr1_core.testing.play`` takes it. The expert reads what
can be clicked from the last page in the prompt, so play with ``show_actions``.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from agentr1_recipes.webshop.goal import Goal
from agentr1_recipes.webshop.product import Product
from agentr1_recipes.webshop.reward import plain_colour

_CLICK = re.compile(r"click\[([^\]]*)\]")
#: Pages of results that the expert turns before it gives up.
MOST_PAGES = 5


def expert(goal: Goal, product: Product) -> Callable[[str], str]:
    """Searches for the title, opens the product, chooses the options that were asked for, and buys.

    Args:
        goal: What was asked for.
        product: The product that the goal was made from.
    """
    todo = [value for value in (_value(product, want) for want in goal.options) if value is not None]
    # Brackets inside would end the action elsewhere, as in WebShop; and it has a product without a title.
    title = re.sub(r"[\[\]\s]+", " ", product.title).strip() or product.query
    turned = 0

    def play(prompt: str) -> str:
        nonlocal turned
        can = clickables(prompt)
        if goal.asin.lower() in can:
            return f"click[{goal.asin.lower()}]"
        if "buy now" in can:
            return f"click[{todo.pop(0)}]" if todo else "click[buy now]"
        if "next >" in can and turned < MOST_PAGES:
            turned += 1
            return "click[next >]"
        return f"search[{title}]"

    return play


def random_policy(rng: random.Random) -> Callable[[str], str]:
    """Searches for words of the instruction where nothing else can be done, and clicks anything anywhere else."""

    def play(prompt: str) -> str:
        can = clickables(prompt)
        if can:
            return f"click[{rng.choice(can)}]"
        words = re.findall(r"\w+", prompt.rpartition("Instruction:")[2].partition("Actions:")[0])
        return f"search[{' '.join(rng.sample(words, min(3, len(words))))}]"

    return play


def clickables(prompt: str) -> list[str]:
    """What the last page of a prompt lists as clickable."""
    return _CLICK.findall(prompt.rpartition("Actions: ")[2])


def _value(product: Product, wanted: str) -> str | None:
    """The product's option value that was meant: the same, or else one of the same colour."""
    values = [value for group in product.options.values() for value in group]
    if wanted.lower() in values:
        return wanted.lower()
    return next((value for value in values if plain_colour(value) == plain_colour(wanted.lower())), None)
