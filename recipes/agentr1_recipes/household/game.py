"""The household game: what commands do and say. Its expert, which knows where all things are, is in ``expert.py``."""

from __future__ import annotations

from collections.abc import Callable

from agentr1_recipes.household.catalogue import APPLIANCES, FURNITURE, THINGS
from agentr1_recipes.household.house import House, kind, preposition
from agentr1_recipes.textgame.env import NOTHING
from agentr1_recipes.textgame.game import TextGame, View


class HouseholdGame(TextGame):
    """One game in a house. The player is in one place at a time and carries one thing."""

    def __init__(self, house: House) -> None:
        self.house = house
        #: The receptacle the player stands at, and what they carry.
        self.at: str | None = None
        self.carried: str | None = None
        self.places = dict(house.places)
        self.opened: set[str] = set()
        #: What was done with each thing.
        self.treated: dict[str, str] = {}

    async def begin(self) -> View:
        names = [f"a {name}" for name in self.house.receptacles]
        seen = ", ".join(names[:-1]) + f", and {names[-1]}"
        text = (
            f"You are in the middle of a {self.house.room}. You see {seen}.\nYour task is to: {self.house.goal.text()}."
        )
        return self._view(text)

    async def do(self, command: str) -> View:
        act = self._actions().get(command)
        return self._view(NOTHING if act is None else act())

    @property
    def won(self) -> bool:
        """Whether a thing of the goal's kind, treated as it asks, lies where it should."""
        goal = self.house.goal
        return any(
            kind(name) == goal.thing
            and kind(place) == goal.furniture
            and (goal.ability is None or self.treated.get(name) == goal.ability)
            for name, place in self.places.items()
        )

    def commands(self) -> tuple[str, ...]:
        """The commands that do something now."""
        return tuple(self._actions())

    def _view(self, text: str) -> View:
        things = sorted(self.places.items())
        state = f"{text}|{self.at}|{self.carried}|{sorted(self.opened)}|{things}|{sorted(self.treated.items())}"
        return View(text, self.commands(), state, self.won)

    def _actions(self) -> dict[str, Callable[[], str]]:
        """Every command that does something now, with what does it and says what is seen."""
        actions: dict[str, Callable[[], str]] = {}
        at, carried = self.at, self.carried
        for name in self.house.receptacles:
            if name != at:
                actions[f"go to {name}"] = lambda name=name: self._go(name)
        if at is not None:
            if FURNITURE[kind(at)].openable:
                if at in self.opened:
                    actions[f"close {at}"] = lambda: self._close(at)
                else:
                    actions[f"open {at}"] = lambda: self._open(at)
            if self._is_reachable(at):
                for thing in self._things_at(at) if carried is None else ():
                    actions[f"take {thing} from {at}"] = lambda thing=thing: self._take(thing, at)
                if carried is not None and kind(at) in THINGS[kind(carried)].places:
                    actions[f"move {carried} to {at}"] = lambda: self._move(carried, at)
            for ability, appliance in APPLIANCES.items() if carried is not None else ():
                if appliance == kind(at) and ability in THINGS[kind(carried)].abilities:
                    actions[f"{ability} {carried} with {at}"] = lambda ability=ability: self._treat(
                        ability, carried, at
                    )
        actions["look"] = self._look
        actions["inventory"] = lambda: f"You are carrying: {f'a {carried}' if carried else 'nothing'}."
        return actions

    def _things_at(self, place: str) -> list[str]:
        return [thing for thing, where in self.places.items() if where == place]

    def _is_reachable(self, place: str) -> bool:
        return not FURNITURE[kind(place)].openable or place in self.opened

    def _contents(self, place: str) -> str:
        if not self._is_reachable(place):
            return f"The {place} is closed."
        things = [f"a {thing}" for thing in self._things_at(place)]
        listed = ", and ".join([", ".join(things[:-1]), things[-1]] if len(things) > 1 else things) or "nothing"
        if FURNITURE[kind(place)].openable:
            return f"The {place} is open. In it, you see {listed}."
        return f"{preposition(kind(place)).capitalize()} the {place}, you see {listed}."

    def _go(self, place: str) -> str:
        self.at = place
        return f"You arrive at {place}. {self._contents(place)}"

    def _look(self) -> str:
        if self.at is None:
            return f"You are in the middle of a {self.house.room}."
        return f"You are facing the {self.at}. {self._contents(self.at)}"

    def _open(self, place: str) -> str:
        self.opened.add(place)
        return f"You open the {place}. {self._contents(place)}"

    def _close(self, place: str) -> str:
        self.opened.discard(place)
        return f"You close the {place}."

    def _take(self, thing: str, place: str) -> str:
        del self.places[thing]
        self.carried = thing
        return f"You pick up the {thing} from the {place}."

    def _move(self, thing: str, place: str) -> str:
        self.places[thing] = place
        self.carried = None
        return f"You move the {thing} to the {place}."

    def _treat(self, ability: str, thing: str, place: str) -> str:
        self.treated[thing] = ability
        return f"You {ability} the {thing} using the {place}."
