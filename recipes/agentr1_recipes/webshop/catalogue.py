"""The catalogue: products by id, with the search index that the shop asks. Read once in a process, never changed."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from pathlib import Path

from agentr1_recipes.webshop.product import Product
from agentr1_tools.search_index import BM25

#: Products that a search finds at most.
SEARCH_SIZE = 50


class Catalogue:
    """Products, and BM25 over them (k1 = 0.9, b = 0.4, English stems, like the Lucene index of WebShop).

    Args:
        products: The products; the first of two with one id counts.
        index: Folder in which the index is kept; nowhere when ``None``.
    """

    def __init__(self, products: Sequence[Product], index: Path | None = None) -> None:
        self.by_asin: dict[str, Product] = {}
        for product in products:
            self.by_asin.setdefault(product.asin, product)
        self.products = tuple(self.by_asin.values())
        self._index = BM25([_searched(product) for product in self.products], index, k1=0.9, b=0.4, stem=True)
        # A page of results asks several times, and so do the episodes of a group.
        self._ranked = functools.lru_cache(maxsize=4096)(self._rank)

    def search(self, keywords: str) -> tuple[Product, ...]:
        """At most ``SEARCH_SIZE`` products that share a word with the keywords, best first."""
        return self._ranked(keywords)

    def _rank(self, keywords: str) -> tuple[Product, ...]:
        return tuple(self.products[row] for row, _ in self._index.rank(keywords, SEARCH_SIZE))


def _searched(product: Product) -> str:
    """What WebShop indexes: title, description, first bullet and options."""
    options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product.options.items())
    return " ".join([product.title, product.description, *product.bullets[:1], options]).lower()
