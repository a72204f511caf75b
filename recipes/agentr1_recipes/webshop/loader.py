"""WebShop's catalogue and goals from its files, or the invented ones.

A folder holds ``items_shuffle.json`` (also ``items_shuffle_1000.json``), ``items_ins_v2.json`` likewise, and for the
goals that people wrote ``items_human_ins.json``; each may be gzipped. Files are read in a stream, since that of the
full catalogue, 1.18 million products, is several GB.
"""

from __future__ import annotations

import functools
import gzip
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from agentr1_core.errors import DataError
from agentr1_recipes.webshop.catalogue import Catalogue
from agentr1_recipes.webshop.goal import Goal, human_goals, synthetic_goals
from agentr1_recipes.webshop.invented import invent
from agentr1_recipes.webshop.product import Product, read_product
from agentr1_recipes.webshop.shop import Shop
from agentr1_tools.search_index import index_folder, user_cache

GoalKind = Literal["human", "synthetic"]
ITEMS, ATTRIBUTES, HUMAN = "items_shuffle", "items_ins_v2", "items_human_ins"
_ONE_AT_A_TIME = threading.Lock()


def open_shop(folder: str | None, show_attributes: bool = False) -> Shop:
    """The shop of a folder's catalogue, or of the invented one for ``None``; the catalogue is read once in a process.

    Raises:
        DataError: A file is missing or is not what it should be.
    """
    return Shop(open_catalogue(folder), show_attributes=show_attributes)


def open_catalogue(folder: str | None) -> Catalogue:
    """The catalogue alone; as ``open_shop``."""
    with _ONE_AT_A_TIME:  # many episodes begin at once
        return _open(folder)


@functools.lru_cache(maxsize=4)
def _open(folder: str | None) -> Catalogue:
    if folder is None:
        invented = invent()
        return Catalogue([read_product(row, invented.attributes(row["asin"]), "invented") for row in invented.items])
    file = _file(Path(folder), ITEMS)
    return Catalogue(
        _products(file, Path(folder)), index_folder(user_cache(), file, "webshop", "k1=0.9", "b=0.4", "stem")
    )


def read_goals(folder: str | None, kind: GoalKind) -> list[Goal]:
    """All goals of a catalogue, in the order of its products.

    Raises:
        DataError: A file is missing, or there is no goal of that kind.
    """
    catalogue = open_catalogue(folder)
    if folder is None:
        instructions: Mapping[str, Any] = invent().human if kind == "human" else invent().instructions
    elif kind == "human":
        instructions = dict(_entries(_file(Path(folder), HUMAN)))
    else:
        instructions = dict(_entries(_file(Path(folder), ATTRIBUTES)))
    goals = [goal for product in catalogue.products for goal in _goals(product, instructions.get(product.asin), kind)]
    if not goals:
        raise DataError(f"The catalogue '{folder}' has no {kind} goals.", "Set `goals: synthetic` or `goals: human`.")
    return goals


def _goals(product: Product, told: Any, kind: GoalKind) -> Iterator[Goal]:
    if not told:
        return
    if kind == "human":
        yield from human_goals(product, told)
    elif told.get("instruction"):
        yield from synthetic_goals(product, told["instruction"], told["instruction_attributes"])


def _products(file: Path, folder: Path) -> list[Product]:
    """The products, without those whose id is too long or missing, as in WebShop."""
    attributes = {asin: told.get("attributes") or () for asin, told in _entries(_file(folder, ATTRIBUTES))}
    return [
        # WebShop's stand-in, which no goal asks for.
        read_product(row, attributes.get(row["asin"], ("DUMMY_ATTR",)), f"{file.name} product {number}")
        for number, row in enumerate(_stream(file, "item"))
        if isinstance(row, dict) and row.get("asin") not in (None, "nan") and len(row["asin"]) <= 10
    ]


def _entries(file: Path) -> Iterator[tuple[str, Any]]:
    """The keys and values of a JSON object, one after the other."""
    import ijson

    yield from _guard(file, lambda stream: ijson.kvitems(stream, "", use_float=True))


def _stream(file: Path, prefix: str) -> Iterator[Any]:
    import ijson

    yield from _guard(file, lambda stream: ijson.items(stream, prefix, use_float=True))


def _guard(file: Path, read: Any) -> Iterator[Any]:
    import ijson

    try:
        with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as stream:
            yield from read(stream)
    except (ijson.JSONError, OSError, EOFError) as error:
        raise DataError(f"'{file}' cannot be read: {error}.", "Check that it is whole: download it again.") from error


def _file(folder: Path, name: str) -> Path:
    found = sorted(file for file in folder.glob(f"{name}*") if file.name.endswith((".json", ".json.gz")))
    if not found:
        raise DataError(
            f"There is no {name}.json in '{folder}'.", "Download WebShop's data with its setup.sh and name that folder."
        )
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise DataError(f"'{folder}' holds several: {names}.", "Keep the one that you mean in a folder of its own.")
    return found[0]
