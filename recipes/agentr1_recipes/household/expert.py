"""Two players of the household game: an expert who knows where all things are, and one who draws commands blindly.

The expert is for checking games and for demonstrations; it sees more than a model does.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from agentr1_recipes.household.catalogue import APPLIANCES, FURNITURE
from agentr1_recipes.household.game import HouseholdGame
from agentr1_recipes.household.house import kind

#: Chooses the next command of a game.
Player = Callable[[HouseholdGame], str]


def expert(game: HouseholdGame) -> str:
    """The next command of a way to the goal that is never undone."""
    goal = game.house.goal
    carried = game.carried
    if carried is None:
        things = [name for name in game.places if kind(name) == goal.thing]
        # What is treated already, or near, saves steps.
        thing = min(
            things, key=lambda name: (game.treated.get(name) != goal.ability, game.places[name] != game.at, name)
        )
        place = game.places[thing]
        return _at(game, place) or f"take {thing} from {place}"
    if kind(carried) != goal.thing:
        homes = [place for place in game.house.receptacles if f"move {carried} to {place}" in game.commands()]
        if homes:
            return f"move {carried} to {homes[0]}"
        return _put_away(game, carried)
    if goal.ability is not None and game.treated.get(carried) != goal.ability:
        appliance = next(place for place in game.house.receptacles if kind(place) == APPLIANCES[goal.ability])
        if game.at != appliance:
            return f"go to {appliance}"
        return f"{goal.ability} {carried} with {appliance}"
    target = next(place for place in game.house.receptacles if kind(place) == goal.furniture)
    return _at(game, target) or f"move {carried} to {target}"


def random_player(seed: str) -> Player:
    """Draws among the commands that do something."""
    rng = random.Random(f"player/{seed}")
    return lambda game: rng.choice(game.commands())


def _at(game: HouseholdGame, place: str) -> str | None:
    """What is still to do before hands are in the place; ``None`` when they are."""
    if game.at != place:
        return f"go to {place}"
    if FURNITURE[kind(place)].openable and place not in game.opened:
        return f"open {place}"
    return None


def _put_away(game: HouseholdGame, carried: str) -> str:
    """On the way to where a thing that is not wanted may lie: where it lay at first."""
    place = game.house.places[carried]
    return _at(game, place) or f"move {carried} to {place}"
