"""A catalogue made up here, in the format of WebShop's files, so that the recipe runs anywhere.

Products of twelve kinds differ in make, trait, options and price, so that an instruction singles one out only when its
attributes, its options and its price limit are all heeded.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

#: What is sold: the plural that shoppers search for, the noun of titles, and the category.
KINDS = (
    ("mugs", "mug", "Home & Kitchen › Kitchen & Dining › Cups & Mugs"),
    ("lamps", "lamp", "Home & Kitchen › Lighting › Table Lamps"),
    ("kettles", "kettle", "Home & Kitchen › Kitchen & Dining › Kettles"),
    ("blankets", "blanket", "Home & Kitchen › Bedding › Blankets"),
    ("boots", "boots", "Clothing › Shoes › Boots"),
    ("scarves", "scarf", "Clothing › Accessories › Scarves"),
    ("jackets", "jacket", "Clothing › Outerwear › Jackets"),
    ("socks", "socks", "Clothing › Underwear › Socks"),
    ("backpacks", "backpack", "Luggage › Bags › Backpacks"),
    ("notebooks", "notebook", "Office › Paper › Notebooks"),
    ("headphones", "headphones", "Electronics › Audio › Headphones"),
    ("speakers", "speaker", "Electronics › Audio › Speakers"),
)
MAKES = ("Aldane", "Bramlow", "Corvik", "Dunmere", "Elvast", "Fenwold", "Galdor", "Hestby")
#: Traits by the first category; a product has three, two of which its instruction asks for.
TRAITS: Mapping[str, Sequence[str]] = {
    "Home & Kitchen": ("easy clean", "hand made", "heat resistant", "space saving", "non slip", "eco friendly"),
    "Clothing": ("machine wash", "long lasting", "water repellent", "slim fit", "wool blend", "quick dry"),
    "Luggage": ("water repellent", "light weight", "padded straps", "long lasting", "hand made", "eco friendly"),
    "Office": ("acid free", "hand made", "lay flat", "eco friendly", "ruled pages", "light weight"),
    "Electronics": (
        "noise cancelling",
        "fast charging",
        "long lasting",
        "light weight",
        "easy install",
        "high fidelity",
    ),
}
OPTIONS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "Home & Kitchen": {"color": ("ivory", "teal", "rust", "slate"), "size": ("small", "large")},
    "Clothing": {"color": ("navy", "olive", "wine", "sand"), "size": ("small", "medium", "large")},
    "Luggage": {"color": ("black", "khaki", "plum")},
    "Office": {"color": ("black", "mint", "peach"), "size": ("a5", "a4")},
    "Electronics": {"color": ("white", "charcoal", "copper")},
}
_WISHES = (
    "i am looking for {kind} that are {traits}, in {options}",
    "i need {traits} {kind}. please choose {options}",
    "can you find me {kind}? i want them {traits} and {options}",
)


@dataclass(frozen=True, slots=True)
class Invented:
    """The three files of a catalogue, as WebShop has them."""

    #: As ``items_shuffle.json``.
    items: tuple[dict[str, Any], ...]
    #: As ``items_ins_v2.json``: attributes and a templated instruction, by product.
    instructions: Mapping[str, dict[str, Any]]
    #: As ``items_human_ins.json``: instructions in freer words, by product.
    human: Mapping[str, list[dict[str, Any]]]

    def attributes(self, asin: str) -> Sequence[str]:
        """The attributes of a product."""
        found: Sequence[str] = self.instructions[asin]["attributes"]
        return found


@functools.cache
def invent(seed: int = 0, n_products: int = 144) -> Invented:
    """The catalogue: ``n_products`` of the kinds in turn; the same for the same seed."""
    rng = random.Random(f"webshop/{seed}")
    items, instructions, human = [], {}, {}
    for number in range(n_products):
        kind, noun, path = KINDS[number % len(KINDS)]
        family = path.split(" › ")[0]
        traits = rng.sample(list(TRAITS[family]), 3)
        options = {name: rng.sample(list(values), len(values) - 1) for name, values in OPTIONS[family].items()}
        asin, asked = f"A{number:03d}", sorted(rng.sample(traits, 2))
        items.append(_item(asin, kind, noun, path, traits, options, rng))
        instructions[asin] = {
            "attributes": traits,
            "instruction": f"Find me {kind} with {', '.join(asked)}",
            "instruction_attributes": asked,
        }
        human[asin] = [_wish(asin, kind, asked, options, form, rng) for form in rng.sample(_WISHES, 2)]
    rng.shuffle(items)
    return Invented(tuple(items), instructions, human)


def _item(
    asin: str,
    kind: str,
    noun: str,
    path: str,
    traits: Sequence[str],
    options: Mapping[str, Sequence[str]],
    rng: random.Random,
) -> dict[str, Any]:
    cents = rng.randrange(500, 9000, 50)
    price = f"${cents / 100:.2f}"
    return {
        "asin": asin,
        "name": f"{rng.choice(MAKES)} {traits[0]} {noun}, {traits[1]}",
        "query": kind,
        "category": path.split(" › ")[0].lower(),
        "product_category": path,
        "full_description": f"A {noun} for every day.",
        "small_description": [f"It is {trait}." for trait in traits],
        "pricing": price if rng.random() < 0.8 else f"{price}${(cents + 500) / 100:.2f}",
        "customization_options": {
            name: [{"value": value, "image": None} for value in values] for name, values in options.items()
        },
        "images": [],
    }


def _wish(
    asin: str, kind: str, traits: Sequence[str], options: Mapping[str, Sequence[str]], form: str, rng: random.Random
) -> dict[str, Any]:
    chosen = {name: rng.choice(list(values)) for name, values in options.items()}
    told = " and ".join(f"{name} {value}" for name, value in chosen.items())
    text = form.format(kind=kind, traits=" and ".join(traits), options=told)
    return {
        "asin": asin,
        "instruction": text,
        "instruction_attributes": list(traits),
        "instruction_options": list(chosen.values()),
    }
