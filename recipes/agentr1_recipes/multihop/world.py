"""A small invented world: people, towns, rivers and books in one passage each, and questions that need two of them.

The recipe's own data set under ``data/`` is made here, in HotpotQA's format, with the passages of the whole world as
the corpus. No fact of it is true.

    python -m agentr1_recipes.multihop.world    # writes data/ anew
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")
#: The passages of the world, for the search tool.
CORPUS = DATA / "passages.jsonl"
#: Share of the questions that is held out.
HELD_OUT = 0.25

_FIRST = "Alma Boris Clara Dario Edda Falk Greta Henrik Ilse Jonas Karla Linus Mona Nils Olga Petra Rasmus Selma"
_LAST = (
    "Abel Brandt Corvin Dahl Ebner Falster Gorin Hallum Ibsen Jarl Kessel Lund Morrow Nevis Oake Pell Quist Renn "
    "Sorel Thorn Ulver Vance Wexley Yarrow Zander Ashby Birk Calder Drumm Elwood Fenn Garrow Holt Irons Jessup Kirk "
    "Larch Marsh Norden Orme"
)
_TOWNS = (
    "Arnford Belmouth Cranwick Dunlow Eastmere Farholt Glenby Harwick Inverdale Kelsby Lowmere Marfield Northam Oxley "
    "Penwick Redmoor Stanby Tolworth Upton Westow"
)
_RIVERS = "Isk Orla Tamsel Verra Wend Zill Lode Marn"
_CRAFTS = "baker composer engineer gardener painter pilot potter sailor surgeon weaver"
_BOOKS = (
    ("Amber", "Broken", "Crimson", "Distant", "Empty", "Frozen", "Golden", "Hidden"),
    ("Bridge", "Garden", "Lantern", "Mirror", "Orchard"),
)


@dataclass(frozen=True, slots=True)
class World:
    """The passages by title, and the questions as rows in HotpotQA's format."""

    passages: Mapping[str, str]
    questions: tuple[dict[str, Any], ...]


def make_world() -> World:
    """The world; always the same."""
    rng = random.Random("world")
    towns = _TOWNS.split()
    people = [f"{rng.choice(_FIRST.split())} {last}" for last in _LAST.split()]
    river = {town: rng.choice(_RIVERS.split()) for town in towns}
    born = {person: rng.choice(towns) for person in people}
    mayor = {town: rng.choice([person for person in people if born[person] != town]) for town in towns}
    craft = {person: rng.choice(_CRAFTS.split()) for person in people}
    books = [f"{first} {second}" for first in _BOOKS[0] for second in _BOOKS[1]]
    author = dict(zip(books, rng.sample(people, len(people)), strict=True))
    passages = {
        **{person: f"{person} is a {craft[person]} born in {born[person]}." for person in people},
        **{town: f"{town} is a town on the river {river[town]}. Its mayor is {mayor[town]}." for town in towns},
        **{book: f"{book} is a novel by {author[book]}." for book in books},
    }
    asked = []
    for person in people:
        town = born[person]
        asked.append((f"On which river is the town where {person} was born?", river[town], (person, town)))
        asked.append((f"Who is the mayor of the town where {person} was born?", mayor[town], (person, town)))
    for book in books:
        writer = author[book]
        asked.append((f"In which town was the author of {book} born?", born[writer], (book, writer)))
        asked.append((f"What is the profession of the author of {book}?", craft[writer], (book, writer)))
    rows = (_row(number, *each, passages, rng) for number, each in enumerate(asked))
    return World(passages, tuple(rows))


def _row(
    number: int, question: str, answer: str, gold: tuple[str, str], passages: Mapping[str, str], rng: random.Random
) -> dict[str, Any]:
    """One question with its two passages among two others."""
    others = rng.sample([title for title in passages if title not in gold], 2)
    titles = rng.sample([*gold, *others], 4)
    return {
        "_id": f"world-{number}",
        "question": question,
        "answer": answer,
        "type": "bridge",
        "level": "easy",
        "supporting_facts": [[title, 0] for title in gold],
        "context": [[title, [passages[title]]] for title in titles],
    }


def split_questions(world: World) -> dict[str, list[dict[str, Any]]]:
    """The questions to train on, and those held out."""
    rows = list(world.questions)
    random.Random("split").shuffle(rows)
    cut = int(len(rows) * HELD_OUT)
    return {"train": rows[cut:], "eval": rows[:cut]}


def main() -> None:
    DATA.mkdir(exist_ok=True)
    world = make_world()
    passages = [{"id": title, "title": title, "text": text} for title, text in world.passages.items()]
    for name, rows in {"passages": passages, **split_questions(world)}.items():
        (DATA / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
