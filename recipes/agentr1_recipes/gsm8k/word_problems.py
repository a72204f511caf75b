"""Word problems from templates, with worked solutions written as GSM8K writes them.

The recipe's own data set under ``data/`` is made here, and so are the demonstrations of its warm start. Every number
of a problem and of its solution is a positive whole number.

    python -m agentr1_recipes.gsm8k.word_problems    # writes data/ anew
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")
#: Rows of each file under ``data/``, and the numbers of calculations that their problems take.
SPLITS: Mapping[str, tuple[int, tuple[int, ...]]] = {
    "train": (400, (1, 2)),
    "eval": (100, (1, 2)),
    "hard": (50, (3,)),
}

_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo")
_THINGS = ("apples", "beads", "cards", "eggs", "marbles", "pens", "shells", "stamps")


@dataclass(frozen=True, slots=True)
class Template:
    """A kind of problem: a text and calculations over its numbers, ``r1`` and ``r2`` being earlier results."""

    text: str
    steps: tuple[str, ...]
    #: Smallest and largest value of each number.
    ranges: Mapping[str, tuple[int, int]]


TEMPLATES: Sequence[Template] = (
    Template(
        "{name} has {a} {things} and finds {b} more. How many {things} does {name} have now?",
        ("{a}+{b}",),
        {"a": (2, 40), "b": (2, 40)},
    ),
    Template(
        "{name} has {a} {things} and gives {b} of them to {other}. How many {things} are left?",
        ("{a}-{b}",),
        {"a": (10, 60), "b": (2, 40)},
    ),
    Template(
        "There are {a} boxes with {b} {things} in each. How many {things} are there in all?",
        ("{a}*{b}",),
        {"a": (2, 12), "b": (2, 20)},
    ),
    Template(
        "{name} shares {a} {things} equally among {b} friends. How many {things} does each friend get?",
        ("{a}/{b}",),
        {"a": (6, 72), "b": (2, 9)},
    ),
    Template(
        "{name} buys {a} bags of {b} {things} and then loses {c} {things}. How many {things} are left?",
        ("{a}*{b}", "{r1}-{c}"),
        {"a": (2, 9), "b": (3, 12), "c": (2, 20)},
    ),
    Template(
        "{name} has {a} {things} and {other} has {b} more than {name}. How many {things} do they have together?",
        ("{a}+{b}", "{a}+{r1}"),
        {"a": (2, 40), "b": (2, 20)},
    ),
    Template(
        "{name} has {a} {things} and {other} has {b} times as many. How many {things} do they have together?",
        ("{a}*{b}", "{a}+{r1}"),
        {"a": (2, 20), "b": (2, 6)},
    ),
    Template(
        "{name} picks {a} {things} today and {b} tomorrow, and packs them equally into {c} boxes. "
        "How many {things} are in each box?",
        ("{a}+{b}", "{r1}/{c}"),
        {"a": (4, 40), "b": (4, 40), "c": (2, 9)},
    ),
    Template(
        "{name} buys {a} tickets for {b} coins each and pays with {c} coins. How many coins does {name} get back?",
        ("{a}*{b}", "{c}-{r1}"),
        {"a": (2, 8), "b": (2, 12), "c": (20, 100)},
    ),
    Template(
        "{name} buys {a} bags of {b} {things}, gives {c} to {other} and shares the rest equally among {d} friends. "
        "How many {things} does each friend get?",
        ("{a}*{b}", "{r1}-{c}", "{r2}/{d}"),
        {"a": (2, 9), "b": (3, 12), "c": (2, 20), "d": (2, 9)},
    ),
    Template(
        "{name} sells {a} cups for {b} coins each and {c} plates for {d} coins each. "
        "How many coins does {name} earn in all?",
        ("{a}*{b}", "{c}*{d}", "{r1}+{r2}"),
        {"a": (2, 9), "b": (2, 9), "c": (2, 9), "d": (2, 9)},
    ),
    Template(
        "{name} has {a} {things} and {other} has {b} times as many. They lose {c}. "
        "How many {things} do they have together now?",
        ("{a}*{b}", "{a}+{r1}", "{r2}-{c}"),
        {"a": (2, 20), "b": (2, 6), "c": (2, 20)},
    ),
)


def make_problem(rng: random.Random, n_steps: Collection[int] = (1, 2)) -> dict[str, Any]:
    """One row of ``question`` and ``answer``, as GSM8K has them.

    Args:
        rng: Source of chance.
        n_steps: Numbers of calculations allowed.
    """
    template = rng.choice([each for each in TEMPLATES if len(each.steps) in n_steps])
    name, other = rng.sample(_NAMES, 2)
    words = {"name": name, "other": other, "things": rng.choice(_THINGS)}
    while True:
        numbers = {key: rng.randint(*bounds) for key, bounds in template.ranges.items()}
        worked = _work(template.steps, numbers)
        if worked is not None:
            break
    lines = [f"{text} = <<{text}={value}>>{value}" for text, value in worked]
    return {
        "question": template.text.format(**words, **numbers),
        "answer": "\n".join([*lines, f"#### {worked[-1][1]}"]),
    }


def _work(steps: Sequence[str], numbers: Mapping[str, int]) -> list[tuple[str, int]] | None:
    """Each calculation and its value; ``None`` where a value is no positive whole number."""
    known = dict(numbers)
    worked = []
    for position, step in enumerate(steps, start=1):
        text = step.format(**known)
        value = _value(step, known)
        if value is None or value < 1:
            return None
        known[f"r{position}"] = value
        worked.append((text, value))
    return worked


def _value(step: str, known: Mapping[str, int]) -> int | None:
    sign = next(character for character in step if character in "+-*/")
    left, right = (known[part.strip("{}")] for part in step.split(sign))
    if sign == "/":
        return left // right if left % right == 0 else None
    return {"+": left + right, "-": left - right, "*": left * right}[sign]


def make_split(split: str, without: Collection[str] = ()) -> list[dict[str, Any]]:
    """The rows of one file under ``data/``: no question twice, and none of ``without``."""
    size, n_steps = SPLITS[split]
    rng = random.Random(f"word problems/{split}")
    rows: dict[str, dict[str, Any]] = {}
    while len(rows) < size:
        row = make_problem(rng, n_steps)
        if row["question"] not in without:
            rows[row["question"]] = row
    return list(rows.values())


def make_data() -> dict[str, list[dict[str, Any]]]:
    """All files under ``data/`` by split; no training question is held out too."""
    held_out = {split: make_split(split) for split in SPLITS if split != "train"}
    questions = {row["question"] for rows in held_out.values() for row in rows}
    return {"train": make_split("train", questions), **held_out}


def main() -> None:
    DATA.mkdir(exist_ok=True)
    for split, rows in make_data().items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (DATA / f"{split}.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
