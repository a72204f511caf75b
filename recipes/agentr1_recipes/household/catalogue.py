"""What there is in a house: furniture by room, and things by what can be done with them and where they lie.

The names are everyday ones, as ALFWorld uses them too; houses are put together from them by ``house.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Furniture:
    """A kind of receptacle."""

    openable: bool = False
    #: Whether things lie in it rather than on it.
    inside: bool = False


@dataclass(frozen=True, slots=True)
class Thing:
    """A kind of object: where it may lie, and what else can be done with it."""

    places: tuple[str, ...]
    abilities: frozenset[str] = frozenset()


FURNITURE: Mapping[str, Furniture] = {
    "bathtub": Furniture(inside=True),
    "bed": Furniture(),
    "cabinet": Furniture(openable=True, inside=True),
    "coffeetable": Furniture(),
    "countertop": Furniture(),
    "desk": Furniture(),
    "diningtable": Furniture(),
    "drawer": Furniture(openable=True, inside=True),
    "dresser": Furniture(),
    "fridge": Furniture(openable=True, inside=True),
    "garbagecan": Furniture(inside=True),
    "microwave": Furniture(openable=True, inside=True),
    "shelf": Furniture(),
    "sidetable": Furniture(),
    "sinkbasin": Furniture(inside=True),
    "sofa": Furniture(),
}

#: Which furniture each room has, most important first; a kind may stand there twice.
ROOMS: Mapping[str, tuple[str, ...]] = {
    "kitchen": (
        *("fridge", "microwave", "sinkbasin", "countertop", "diningtable", "cabinet"),
        *("drawer", "shelf", "garbagecan", "cabinet", "countertop", "drawer"),
    ),
    "bedroom": ("bed", "desk", "dresser", "drawer", "shelf", "sidetable", "garbagecan", "drawer", "shelf"),
    "bathroom": ("sinkbasin", "countertop", "bathtub", "cabinet", "garbagecan", "shelf", "cabinet"),
    "livingroom": ("sofa", "coffeetable", "sidetable", "shelf", "drawer", "diningtable", "garbagecan", "drawer"),
}

_TABLES = ("countertop", "diningtable", "shelf", "desk", "coffeetable", "sidetable", "dresser")
_CUPBOARDS = ("cabinet", "fridge", "microwave", "sinkbasin")
_ALL = frozenset({"clean", "heat", "cool"})

THINGS: Mapping[str, Thing] = {
    "apple": Thing((*_TABLES, "fridge", "microwave", "sinkbasin", "garbagecan"), _ALL),
    "book": Thing((*_TABLES, "bed", "sofa", "drawer")),
    "bowl": Thing((*_TABLES, *_CUPBOARDS), frozenset({"clean", "cool"})),
    "cellphone": Thing((*_TABLES, "bed", "sofa", "drawer")),
    "cloth": Thing((*_TABLES, "cabinet", "drawer", "bathtub", "sinkbasin"), frozenset({"clean"})),
    "egg": Thing((*_TABLES, "fridge", "microwave", "sinkbasin", "garbagecan"), _ALL),
    "fork": Thing((*_TABLES, "drawer", "sinkbasin"), frozenset({"clean"})),
    "keychain": Thing((*_TABLES, "sofa", "drawer")),
    "knife": Thing((*_TABLES, "drawer", "sinkbasin"), frozenset({"clean"})),
    "mug": Thing((*_TABLES, *_CUPBOARDS), _ALL),
    "pan": Thing((*_TABLES, "cabinet", "fridge", "sinkbasin"), frozenset({"clean", "cool"})),
    "pen": Thing((*_TABLES, "bed", "drawer", "garbagecan")),
    "pillow": Thing(("bed", "sofa")),
    "plate": Thing((*_TABLES, *_CUPBOARDS), _ALL),
    "potato": Thing((*_TABLES, "fridge", "microwave", "sinkbasin", "garbagecan"), _ALL),
    "soapbar": Thing(("countertop", "shelf", "cabinet", "bathtub", "sinkbasin", "garbagecan"), frozenset({"clean"})),
    "spraybottle": Thing(("countertop", "shelf", "cabinet", "garbagecan")),
    "statue": Thing(_TABLES),
    "tomato": Thing((*_TABLES, "fridge", "microwave", "sinkbasin", "garbagecan"), _ALL),
    "vase": Thing(_TABLES),
}

#: What an ability needs.
APPLIANCES: Mapping[str, str] = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
