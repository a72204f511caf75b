"""Deliberately poor demonstrations of the household game.

They are moments of games that a careless player got into. Two fifths of what they say there is any command that does
something, drawn blindly, and the rest is what the expert would do. They teach a fresh model to read what is seen and to
say commands, and leave plenty to learn.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from typing import Any

from agentr1_core.task import Task
from agentr1_recipes.household.expert import expert
from agentr1_recipes.household.game import HouseholdGame
from agentr1_recipes.household.house import house_of
from agentr1_recipes.textgame.env import GameRules, TextGameEnv, say

#: Share of moves, and of demonstrated commands, that are drawn blindly.
SHARE_BLIND = 0.4


def demonstrate(tasks: Sequence[Task], size: int, seed: int, rules: GameRules) -> list[dict[str, Any]]:
    """``size`` rows of ``prompt`` and ``completion``, from games of the tasks in turn, shown by the rules."""
    return asyncio.run(_demonstrate(tasks, size, random.Random(f"demonstrations/{seed}"), rules))


async def _demonstrate(tasks: Sequence[Task], size: int, rng: random.Random, rules: GameRules) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    number = 0
    while len(rows) < size:
        task = tasks[number % len(tasks)]
        number += 1
        game = HouseholdGame(house_of(task))
        env = TextGameEnv(game, rules)
        shown = (await env.reset(task)).messages
        while len(rows) < size:
            good = expert(game)
            said, done = (rng.choice(game.commands()) if rng.random() < SHARE_BLIND else good for _ in range(2))
            rows.append({"prompt": list(shown), "completion": [{"role": "assistant", "content": said}]})
            result = await env.step(say(done))
            if result.terminated or result.truncated or result.observation is None:
                break
            shown = result.observation.messages
    return rows
