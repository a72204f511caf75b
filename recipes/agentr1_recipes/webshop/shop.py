"""The shop: its pages, what can be clicked on them, and where a click leads. No reward, no model, no server.

A page is plain data. ``visit`` answers an action with the next page, or with ``None`` where the page does not allow it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from agentr1_recipes.webshop.catalogue import Catalogue
from agentr1_recipes.webshop.product import Product

PAGE_SIZE = 10
BACK, NEXT, PREVIOUS, BUY = "Back to Search", "Next >", "< Prev", "Buy Now"
SEPARATOR = " [SEP] "

Kind = Literal["start", "results", "item", "detail", "bought"]
_ACTION = re.compile(r"(.+)\[(.+)\]")


@dataclass(frozen=True, slots=True)
class Page:
    """Where the shopper is. Fields that a page does not show are what it goes back to."""

    kind: Kind = "start"
    keywords: str = ""
    #: Of the results, from 1.
    number: int = 1
    asin: str = ""
    #: Chosen values by option name.
    chosen: Mapping[str, str] = field(default_factory=dict)
    #: Which detail is shown.
    detail: str = ""

    @property
    def key(self) -> str:
        """Names the state that the shopper sees or has chosen: equal for the same page however it was reached."""
        if self.kind == "results":
            return f"results {self.number} of {self.keywords}"
        if self.kind in ("item", "detail", "bought"):
            return f"{self.kind} {self.asin} {self.detail} {sorted(self.chosen.items())}"
        return self.kind


class Shop:
    """A catalogue behind pages.

    Args:
        catalogue: What is sold.
        show_attributes: Add the page of hidden attributes that WebShop has for people who look into it.
    """

    def __init__(self, catalogue: Catalogue, *, show_attributes: bool = False) -> None:
        self.catalogue = catalogue
        self._details = ("Description", "Features", "Reviews", *(("Attributes",) if show_attributes else ()))

    def visit(self, page: Page, action: str) -> Page | None:
        """The page that an action leads to; ``None`` when the action is not possible on this page.

        Args:
            page: Where the shopper is.
            action: ``search[keywords]`` or ``click[what]``; the argument in any case.
        """
        name, argument = parse_action(action)
        if name == "search" and argument:
            return Page("results", keywords=argument)
        if name != "click" or argument not in self.clickables(page):
            return None
        return self._click(page, argument)

    def clickables(self, page: Page) -> list[str]:
        """What ``click`` takes on this page, lower-case, in the order of the page."""
        if page.kind == "results":
            found = [product.asin for product in self._shown(page)]
            return [text.lower() for text in (BACK, *self._turns(page), *found)]
        if page.kind == "item":
            values = [value for group in self._product(page).options.values() for value in group]
            buttons = [text.lower() for text in (BACK, PREVIOUS, *self._details, BUY)]
            return list(dict.fromkeys([*buttons[:2], *values, *buttons[2:]]))
        if page.kind == "detail":
            return [BACK.lower(), PREVIOUS.lower()]
        return []

    def text(self, page: Page, instruction: str) -> str:
        """The visible strings of the page, joined by `` [SEP] ``."""
        if page.kind == "start":
            parts = ["WebShop", "Instruction:", instruction, "Search"]
        elif page.kind == "bought":
            parts = ["Thank you for shopping with us!"]
        else:
            parts = ["Instruction:", instruction, BACK, *self._body(page)]
        return SEPARATOR.join(part.strip() for part in parts if part.strip())

    def _body(self, page: Page) -> list[str]:
        if page.kind == "results":
            total = len(self.catalogue.search(page.keywords))
            parts = [f"Page {page.number} (Total results: {total})", *self._turns(page)]
            for product in self._shown(page):
                parts += [product.asin, product.title, product.price_tag]
            return parts
        product = self._product(page)
        if page.kind == "detail":
            return [PREVIOUS, *_detail(product, page.detail)]
        options = [text for name, values in product.options.items() for text in (name, *values)]
        about = [product.title, f"Price: {product.price_tag}", "Rating: N.A."]
        return [PREVIOUS, *options, *about, *self._details, BUY]

    def _click(self, page: Page, what: str) -> Page:
        if what == BUY.lower():
            return replace(page, kind="bought")
        if what == BACK.lower():
            return Page()
        if what == NEXT.lower():
            return replace(page, number=page.number + 1)
        if what == PREVIOUS.lower():
            if page.kind == "results":
                return replace(page, number=page.number - 1)
            if page.kind == "detail":
                return replace(page, kind="item", detail="")
            return Page("results", page.keywords, page.number)
        if page.kind == "results":
            return replace(page, kind="item", asin=what.upper(), chosen={})
        if what in {name.lower() for name in self._details}:
            return replace(page, kind="detail", detail=what)
        # Of two options with this value the last one is chosen, as in WebShop.
        name = [name for name, values in self._product(page).options.items() if what in values][-1]
        return replace(page, chosen={**page.chosen, name: what})

    def _turns(self, page: Page) -> tuple[str, ...]:
        return (PREVIOUS, NEXT) if page.number > 1 else (NEXT,)

    def _shown(self, page: Page) -> tuple[Product, ...]:
        start = (page.number - 1) * PAGE_SIZE
        return self.catalogue.search(page.keywords)[start : start + PAGE_SIZE]

    def _product(self, page: Page) -> Product:
        return self.catalogue.by_asin[page.asin]


def parse_action(action: str) -> tuple[str, str]:
    """``click[Buy Now]`` as ``("click", "buy now")``; the argument is empty where there is none."""
    found = _ACTION.match(action)
    return (found[1], found[2].lower()) if found else (action, "")


def _detail(product: Product, detail: str) -> list[str]:
    if detail == "description":
        return [product.description]
    if detail == "features":
        return list(product.bullets)
    if detail == "attributes":
        return [*product.attributes, product.category, product.query, product.product_category]
    return []  # reviews: the public catalogue has none
