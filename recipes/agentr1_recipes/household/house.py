"""Houses: a room with furniture, things in it, and a task. ``build_house`` draws one from seeds."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agentr1_core.errors import ConfigError, DataError
from agentr1_core.task import Task
from agentr1_recipes.household.catalogue import APPLIANCES, FURNITURE, ROOMS, THINGS

#: The task types by the name that ALFWorld has for such tasks; the value is the ability they need.
TASK_TYPES: Mapping[str, str | None] = {
    "pick_and_place_simple": None,
    "pick_clean_then_place_in_recep": "clean",
    "pick_heat_then_place_in_recep": "heat",
    "pick_cool_then_place_in_recep": "cool",
}
_DONE = {"clean": "clean", "heat": "hot", "cool": "cool"}


@dataclass(frozen=True, slots=True)
class Goal:
    """Put a thing of a kind in or on furniture of a kind, after something was done with it."""

    thing: str
    furniture: str
    ability: str | None

    def text(self) -> str:
        """The task in words."""
        done = f"{_DONE[self.ability]} " if self.ability else ""
        return f"put a {done}{self.thing} {preposition(self.furniture)} {self.furniture}"


@dataclass(frozen=True, slots=True)
class House:
    """A house before anything is done in it."""

    room: str
    #: Receptacles such as ``drawer 2``, in the order they are told.
    receptacles: tuple[str, ...]
    #: Where each object, such as ``mug 1``, lies.
    places: Mapping[str, str]
    goal: Goal
    task_type: str


def kind(name: str) -> str:
    """``mug`` of ``mug 1``."""
    return name.rpartition(" ")[0]


def preposition(furniture: str) -> str:
    """How things lie there."""
    return "in" if FURNITURE[furniture].inside else "on"


def build_house(
    layout: str,
    placement: str,
    task_type: str = "pick_and_place_simple",
    *,
    receptacles: int = 8,
    objects: int = 10,
    rooms: Sequence[str] = tuple(ROOMS),
) -> House:
    """Draw a house that has the task and does not solve it from the start.

    Args:
        layout: Seed of the room and its furniture.
        placement: Seed of the things, their places and the goal.
        task_type: One of ``TASK_TYPES``.
        receptacles: How many there are, if the room has so many.
        objects: How many things lie about.
        rooms: Kinds of rooms to draw from, where they have what the task needs.

    Raises:
        ConfigError: A number is too small, or there is no such task.
    """
    if task_type not in TASK_TYPES:
        raise ConfigError(f"There is no task type '{task_type}'.", f"Choose among: {', '.join(TASK_TYPES)}.")
    if receptacles < 5 or objects < 1:
        raise ConfigError(
            f"A house with {receptacles} receptacles and {objects} objects is too small.",
            "Give at least 5 receptacles and 1 object.",
        )
    ability = TASK_TYPES[task_type]
    needed = {APPLIANCES[ability]} if ability else set()
    usable = [room for room in rooms if needed <= set(ROOMS.get(room, ()))]
    if not usable or not set(rooms) <= set(ROOMS):
        raise ConfigError(
            f"No house of rooms {', '.join(rooms)} has the task '{task_type}'.", f"Rooms: {', '.join(ROOMS)}."
        )
    rng = random.Random(f"layout/{layout}/{task_type}")
    room = rng.choice(usable)
    furniture = _furnish(rng, room, needed, receptacles)
    rng = random.Random(f"placement/{layout}/{placement}/{task_type}")
    kinds = sorted({kind(name) for name in furniture})
    goals = [
        Goal(thing, target, ability)
        for thing in sorted(THINGS)
        for target in kinds
        if target in THINGS[thing].places
        and len(_homes(thing, furniture, avoid=target)) > 0
        and (ability is None or (ability in THINGS[thing].abilities and target != APPLIANCES[ability]))
    ]
    goal = rng.choice(goals)
    homes = {thing: _homes(thing, furniture) for thing in sorted(THINGS)}
    homes[goal.thing] = _homes(goal.thing, furniture, avoid=goal.furniture)
    drawn = [goal.thing, *rng.choices([thing for thing, where in homes.items() if where], k=objects - 1)]
    places = {name: rng.choice(homes[kind(name)]) for name in _numbered(sorted(drawn))}
    return House(room, tuple(furniture), places, goal, task_type)


def house_of(task: Task) -> House:
    """The house that a row describes: ``layout``, ``placement``, ``task_type``, ``receptacles``, ``objects``.

    Raises:
        DataError: A column is missing.
    """
    missing = [column for column in ("layout", "placement", "task_type") if column not in task]
    if missing:
        raise DataError(f"{task.where}: column '{missing[0]}' is missing.", "Take tasks of the recipe `household`.")
    size = {column: int(task[column]) for column in ("receptacles", "objects") if column in task}
    rooms = tuple(task.get("rooms") or ROOMS)
    return build_house(str(task["layout"]), str(task["placement"]), task["task_type"], rooms=rooms, **size)


def _furnish(rng: random.Random, room: str, needed: set[str], wanted: int) -> list[str]:
    """The receptacles of a room, those that are needed among them."""
    rest = list(ROOMS[room])
    for each in needed:
        rest.remove(each)
    return _numbered(sorted([*needed, *rng.sample(rest, min(wanted, len(ROOMS[room])) - len(needed))]))


def _numbered(kinds: Sequence[str]) -> list[str]:
    """``drawer 1``, ``drawer 2``, ``shelf 1`` of two drawers and a shelf."""
    seen: Counter[str] = Counter()
    names = []
    for each in kinds:
        seen[each] += 1
        names.append(f"{each} {seen[each]}")
    return names


def _homes(thing: str, furniture: Sequence[str], avoid: str | None = None) -> list[str]:
    """Where a thing may lie."""
    return [name for name in furniture if kind(name) in THINGS[thing].places and kind(name) != avoid]
