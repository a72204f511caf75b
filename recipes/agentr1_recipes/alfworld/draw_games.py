"""Draws games of ALFWorld's kind from what is inside the ``alfworld`` package, and prints one JSON object for each.

``generate.py`` starts this file with the interpreter that has ``alfworld``; so it imports nothing of agentr1.

From the package come the PDDL predicates and goal templates, which kinds of objects lie in which receptacles and what
can be done with them, and for each of the 120 AI2-THOR scenes its kinds of objects, its receptacles and the split it
belongs to. Where each object lies at the start is drawn: ALFRED takes that from the simulator, which is not used here.
"""

import argparse
import json
import os
import random
import sys

import alfworld.gen
from alfworld.gen import constants, goal_library

LAYOUTS = os.path.join(alfworld.gen.__path__[0], "layouts")
#: Task types, with the ability that the object must have and the receptacle that gives it.
TASKS = {
    "pick_and_place_simple": None,
    "look_at_obj_in_light": None,
    "pick_clean_then_place_in_recep": ("Cleanable", "SinkBasin"),
    "pick_heat_then_place_in_recep": ("Heatable", "Microwave"),
    "pick_cool_then_place_in_recep": ("Coolable", "Fridge"),
    "pick_two_obj_and_place": None,
}
LAMPS = ("DeskLamp", "FloorLamp")
LAMP_STANDS = ("Desk", "SideTable", "Dresser", "Shelf", "CoffeeTable", "DiningTable", "TVStand")
#: Receptacles of ALFRED that cannot hold what a task asks for.
NEVER_USED = {"Sink", "Bathtub", "PaintingHanger"}
RECEPTACLES = set(constants.STATIC_RECEPTACLES) - NEVER_USED
HOLDS = constants.VAL_RECEPTACLE_OBJECTS
MOVABLE_OBJECTS = set().union(*HOLDS.values()) - set(constants.STATIC_RECEPTACLES) - set(LAMPS)
ABILITIES = {
    "cleanable": "Cleanable",
    "heatable": "Heatable",
    "coolable": "Coolable",
    "toggleable": "Toggleable",
    "sliceable": "Sliceable",
}
#: PDDL has no room for these characters in names; ALFWorld reads the words back.
PDDL_NAMES = str.maketrans({"-": "_minus_", "#": "-", "|": "_bar_", "+": "_plus_", ".": "_dot_", ",": "_comma_"})


class Scene:
    """Receptacles of one floor plan, each with its kind and where one stands in front of it."""

    def __init__(self, number, rng):
        self.number = number
        with open(os.path.join(LAYOUTS, f"FloorPlan{number}-objects.json")) as source:
            self.kinds_seen = set(json.load(source))
        with open(os.path.join(LAYOUTS, f"FloorPlan{number}-openable.json")) as source:
            stands = json.load(source)
        self.kind = {}
        self.spot = {}
        for name, (x, z, turn, tilt) in sorted(stands.items()):
            kind = name.split("|")[-1] if name.endswith("Basin") else name.split("|")[0]
            if kind in RECEPTACLES:
                self.add(name, kind, (x, z, turn, tilt))
        # Kinds that the scene has but for which no spot is recorded get one.
        for kind in sorted((self.kinds_seen & RECEPTACLES) - set(self.kind.values())):
            for _ in range(4 if kind == "StoveBurner" else 1):
                name = at_random(kind, rng) + ("|" + kind if kind.endswith("Basin") else "")
                self.add(name, kind, (rng.randint(-12, 12) / 4, rng.randint(-12, 12) / 4, 90 * rng.randrange(4), 30))

    def add(self, name, kind, stand):
        x, z, turn, tilt = stand
        self.kind[name] = kind
        self.spot[name] = f"loc|{int(x * 4)}|{int(z * 4)}|{turn // 90}|{tilt}"

    def that_hold(self, thing, avoid=""):
        return sorted(name for name, kind in self.kind.items() if thing in HOLDS.get(kind, ()) and kind != avoid)


def at_random(kind, rng):
    """A name as the simulator gives it, with made-up coordinates."""
    return kind + "".join(f"|{rng.uniform(-4, 4):+06.2f}" for _ in range(3))


def draw_goal(scene, task, rng):
    """What to find and where to take it (or the lamp to see it by), or ``None`` if the scene has no such goal."""
    things = sorted(scene.kinds_seen & MOVABLE_OBJECTS)
    kinds = sorted(set(scene.kind.values()))
    if task == "look_at_obj_in_light":
        lamps = sorted(scene.kinds_seen & set(LAMPS))
        goals = [(thing, "") for thing in things if thing != "Box" and scene.that_hold(thing)]
        if not lamps or not goals or not set(kinds) & set(LAMP_STANDS):
            return None
        return (*rng.choice(goals), rng.choice(lamps))
    able, place = TASKS[task] or (None, None)
    goals = [
        (thing, kind)
        for thing in things
        for kind in kinds
        if thing in HOLDS.get(kind, ())
        and kind != place
        and (able is None or thing in constants.VAL_ACTION_OBJECTS[able])
        and scene.that_hold(thing, avoid=kind)
    ]
    if not goals or (place is not None and place not in kinds):
        return None
    return (*rng.choice(goals), "")


def draw_places(scene, task, goal, rng):
    """Objects by name, each with its kind and the receptacle it lies in."""
    thing, target, _ = goal
    placed = {}
    for kind in sorted(scene.kinds_seen & MOVABLE_OBJECTS):
        homes = scene.that_hold(kind, avoid=target if kind == thing else "")
        least = 2 if kind == thing and task == "pick_two_obj_and_place" else 1
        for _ in range(rng.randint(least, constants.MAX_NUM_OF_OBJ_INSTANCES) if homes else 0):
            placed[at_random(kind, rng)] = (kind, rng.choice(homes))
    stands = sorted(name for name, kind in scene.kind.items() if kind in LAMP_STANDS)
    for kind in sorted(scene.kinds_seen & set(LAMPS)):
        if stands:
            placed[at_random(kind, rng)] = (kind, rng.choice(stands))
    return placed


def write_problem(scene, task, goal, placed, name, rng):
    """The PDDL problem as a text."""
    thing, target, lamp = goal
    kinds = {kind for kind, _ in placed.values()}
    start = f"loc|{rng.randint(-8, 8)}|{rng.randint(-8, 8)}|{rng.randrange(4)}|30"
    objects = ["agent1 # agent"]
    objects += [f"{kind}Type # otype" for kind in sorted(kinds | {thing})]
    objects += [f"{kind}Type # rtype" for kind in sorted(set(scene.kind.values()))]
    objects += [f"{each} # object" for each in sorted(placed)]
    objects += [f"{each} # receptacle" for each in sorted(scene.kind)]
    objects += [f"{each} # location" for each in sorted({*scene.spot.values(), start})]
    facts = [f"atLocation agent1 {start}"]
    for each, kind in sorted(scene.kind.items()):
        facts += [f"receptacleType {each} {kind}Type", f"receptacleAtLocation {each} {scene.spot[each]}"]
        facts += [f"openable {each}"] if kind in constants.OPENABLE_CLASS_SET else []
    for kind in sorted(set(scene.kind.values())):
        facts += [f"canContain {kind}Type {each}Type" for each in sorted(kinds & set(HOLDS.get(kind, ())))]
    for each, (kind, home) in sorted(placed.items()):
        facts += [f"objectType {each} {kind}Type", f"inReceptacle {each} {home}"]
        facts += [f"objectAtLocation {each} {scene.spot[home]}"]
        facts += [f"pickupable {each}"] if kind not in LAMPS else []
        facts += [f"isReceptacleObject {each}"] if kind in constants.MOVABLE_RECEPTACLES_SET else []
        facts += [
            f"{ability} {each}" for ability, group in ABILITIES.items() if kind in constants.VAL_ACTION_OBJECTS[group]
        ]
    asked = goal_library.gdict[task]["pddl"].format(obj=thing, recep=target, toggle=lamp, mrecep="")
    lines = [f"(define (problem {name})", "(:domain alfred)", "(:objects", *objects, ")", "(:init"]
    lines += [f"({fact})" for fact in facts] + [")"]
    return "\n".join([*lines, asked]).translate(PDDL_NAMES)


def draw_game(split, task, number):
    """One game, the same for the same arguments."""
    rng = random.Random(f"alfworld/{split}/{task}/{number}")
    scenes = constants.TEST_SCENE_NUMBERS if split == "valid_unseen" else constants.TRAIN_SCENE_NUMBERS
    rooms = {each for kind in constants.GOALS_VALID[task] for each in constants.SCENE_TYPE[kind]}
    while True:
        scene = Scene(rng.choice([each for each in scenes if each in rooms]), rng)
        goal = draw_goal(scene, task, rng)
        if goal is None:
            continue
        thing, target, lamp = goal
        placed = draw_places(scene, task, goal, rng)
        trial = f"trial_{split}_{number:04d}"
        words = goal_library.gdict[task]["templates"][0].format(
            obj=thing.lower(), recep=target.lower(), toggle=lamp.lower(), mrecep=""
        )
        return {
            "name": f"{task}-{thing}-None-{target or lamp}-{scene.number}/{trial}",
            "goal": words,
            "task_type": task,
            "pddl_params": {
                "object_target": thing,
                "parent_target": target,
                "toggle_target": lamp,
                "mrecep_target": "",
                "object_sliced": False,
            },
            "pddl_problem": write_problem(scene, task, goal, placed, "plan_" + trial, rng),
        }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("split", choices=["train", "valid_seen", "valid_unseen"])
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--first", type=int, default=0, help="number of the first game")
    parser.add_argument("--games", type=int, default=1)
    options = parser.parse_args()
    for number in range(options.first, options.first + options.games):
        sys.stdout.write(json.dumps(draw_game(options.split, options.task, number)) + "\n")
