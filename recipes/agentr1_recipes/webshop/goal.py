"""Goals: an instruction, and what the product that fulfils it must have.

Two kinds, as in WebShop: those that people wrote for a product, and those written by a template for every combination
of a product's options.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentr1_core.errors import DataError
from agentr1_recipes.webshop.product import Product

#: Limits that an instruction may name, in dollars.
PRICE_LIMITS = tuple(10.0 * step for step in range(1, 100))
#: The limit of a goal that names none.
NO_LIMIT = 1_000_000.0
#: Seed of the order in which WebShop numbers its goals.
ORDER_SEED = 233


@dataclass(frozen=True, slots=True)
class Goal:
    """What the shopper was told, and what is looked at when they buy."""

    instruction: str
    asin: str
    title: str
    query: str
    product_category: str
    attributes: tuple[str, ...]
    #: Option values that were asked for.
    options: tuple[str, ...]
    #: Dollars.
    price_upper: float = NO_LIMIT

    def as_row(self) -> dict[str, Any]:
        """The goal as plain values, for a task."""
        return {
            "instruction": self.instruction,
            "asin": self.asin,
            "title": self.title,
            "query": self.query,
            "product_category": self.product_category,
            "attributes": list(self.attributes),
            "options": list(self.options),
            "price_upper": self.price_upper,
        }

    @classmethod
    def from_row(cls, row: Mapping[str, Any], where: str) -> Goal:
        """The goal of a task.

        Raises:
            DataError: A field is missing or unknown.
        """
        try:
            told = {**row, "attributes": tuple(row["attributes"]), "options": tuple(row["options"])}
            return cls(**told)
        except (KeyError, TypeError) as error:
            raise DataError(
                f"{where}: column 'goal' is no goal of WebShop ({error}).", "Take tasks from the recipe 'webshop'."
            ) from error


def human_goals(product: Product, instructions: Sequence[Mapping[str, Any]]) -> Iterator[Goal]:
    """The goals that people wrote for a product; those without attributes are left out, as in WebShop."""
    for number, told in enumerate(instructions):
        if not told["instruction_attributes"]:
            continue
        limit, text = _limit(product, random.Random(f"human/{product.asin}/{number}"))
        yield _goal(
            product,
            told["instruction"].strip(".") + text,
            told["instruction_attributes"],
            told["instruction_options"],
            limit,
        )


def synthetic_goals(product: Product, instruction: str, attributes: Sequence[str]) -> Iterator[Goal]:
    """One goal for each combination of the product's options.

    WebShop compares ``(name, value)`` pairs of such goals with the values bought; here the values are compared.
    """
    limit, text = _limit(product, random.Random(f"synthetic/{product.asin}"))
    names = sorted(product.options)
    for values in itertools.product(*(product.options[name] for name in names)):
        told = ", and ".join(f"{name}: {value}" for name, value in zip(names, values, strict=True))
        yield _goal(product, f"{instruction}{' with ' + told if told else ''}{text}", attributes, values, limit)


def split_goals(goals: Sequence[Goal], n_test: int = 500, n_validation: int = 1000) -> dict[str, list[Goal]]:
    """Goals in WebShop's order: the first are ``test``, the next ``eval``, the rest ``train``.

    With fewer than twice as many goals as are held out, a sixth is for ``test`` and a third for ``eval``.

    Args:
        goals: In the order of the products.
        n_test: Goals of ``test``.
        n_validation: Goals of ``eval``.
    """
    order = list(goals)
    random.Random(ORDER_SEED).shuffle(order)
    if len(order) < 2 * (n_test + n_validation):
        n_test, n_validation = len(order) // 6, len(order) // 3
    held_out = n_test + n_validation
    return {"test": order[:n_test], "eval": order[n_test:held_out], "train": order[held_out:]}


def _goal(
    product: Product, instruction: str, attributes: Sequence[str], options: Sequence[str], price_upper: float
) -> Goal:
    return Goal(
        instruction=instruction,
        asin=product.asin,
        title=product.title,
        query=product.query,
        product_category=product.product_category,
        attributes=tuple(attributes),
        options=tuple(options),
        price_upper=price_upper,
    )


def _limit(product: Product, rng: random.Random) -> tuple[float, str]:
    """The larger of two of the next four limits above the price, and how the instruction tells it."""
    above = [limit for limit in PRICE_LIMITS if limit > product.price][:4]
    if len(above) < 2:
        return NO_LIMIT, ""
    limit = max(rng.sample(above, 2))
    return limit, f", and price lower than {limit:.2f} dollars"
