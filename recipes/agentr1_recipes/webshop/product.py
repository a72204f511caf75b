"""Products of the shop, from the rows of WebShop's item files.

The loader and the generator of the invented catalogue call ``read_product``; every page and reward reads the result.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentr1_core.errors import DataError

#: The price of a product that names none, in dollars.
NO_PRICE = 100.0


@dataclass(frozen=True, slots=True)
class Product:
    """What is known of a product; texts as the shop shows them."""

    asin: str
    title: str
    query: str = ""
    #: Categories from wide to narrow, joined by ``›``.
    product_category: str = ""
    category: str = ""
    description: str = ""
    bullets: tuple[str, ...] = ()
    #: Hidden from the shopper unless the shop shows them.
    attributes: tuple[str, ...] = ()
    #: Values of each option, lower-case.
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    #: As shown, such as ``$9.99`` or ``$5.0 to $9.0``.
    price_tag: str = "$100.0"
    #: What it costs, in dollars.
    price: float = NO_PRICE


def read_product(row: Mapping[str, Any], attributes: Sequence[str], where: str) -> Product:
    """A product from a row of ``items_shuffle.json``.

    Args:
        row: The row.
        attributes: Its attributes, from ``items_ins``.
        where: Names the row in errors.

    Raises:
        DataError: A needed field is missing or has another shape.
    """
    try:
        bullets = row.get("small_description") or ()
        tag, price = _price(row.get("pricing"), row["asin"])
        return Product(
            asin=row["asin"],
            title=row["name"],
            query=row["query"].lower().strip(),
            product_category=row["product_category"],
            category=row["category"],
            description=row.get("full_description") or "",
            bullets=(bullets,) if isinstance(bullets, str) else tuple(bullets),
            attributes=tuple(attributes),
            options=_options(row.get("customization_options") or {}),
            price_tag=tag,
            price=price,
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            f"{where}: not a product of WebShop ({type(error).__name__}: {error}).",
            "Give a list of objects with asin, name, query, category, product_category, pricing and so on.",
        ) from error


def _options(given: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Option names and values, lower-case; a slash in a value would look like a path."""
    return {
        name.lower(): tuple(each["value"].strip().replace("/", " | ").lower() for each in values)
        for name, values in given.items()
        if values is not None
    }


def _price(text: str | None, asin: str) -> tuple[str, float]:
    """The price as shown and as paid; of a range, a point drawn once for the product."""
    if not text:
        return f"${NO_PRICE}", NO_PRICE
    amounts = [float(re.sub(r"[^\d.]", "", part)) for part in text.split("$")[1:]]
    if len(amounts) == 1:
        return f"${amounts[0]}", amounts[0]
    low, high = amounts[:2]
    return f"${low} to ${high}", random.Random(f"price/{asin}").uniform(low, high)
