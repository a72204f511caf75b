"""Deliberately poor demonstrations on the recipe's own games, and the small model that is made for them.

    python -m agentr1_recipes.alfworld.demonstrations data/demonstrations.jsonl.xz --python ~/alfworld/bin/python

recorded the file that the recipe brings: moments that a careless player got into, half of them with what ALFWorld's
expert would do there and half with any command, drawn blindly.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import lzma
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentr1_core.errors import AgentR1Error
from agentr1_core.task import Task
from agentr1_recipes.alfworld.games import OWN_GAMES, GameFile, find_games
from agentr1_recipes.alfworld.pool import GamePool, PooledGame, PoolSettings
from agentr1_recipes.textgame.env import GameRules, TextGameEnv, say

RECORDED = OWN_GAMES / "demonstrations.jsonl.xz"
#: How the small model sees a game: the prompt is written anew each turn, with what is seen now.
TINY_RULES = GameRules(system_prompt="", history=0, max_turns=30)
#: Share of moves, and of demonstrated commands, that are drawn blindly.
SHARE_BLIND = 0.5


def read_demonstrations(size: int, seed: int) -> list[dict[str, Any]]:
    """``size`` rows of ``prompt`` and ``completion``, drawn from those recorded."""
    with lzma.open(RECORDED, "rt", encoding="utf-8") as source:
        rows = [json.loads(line) for line in source]
    rng = random.Random(f"demonstrations/{seed}")
    return [
        {
            "prompt": [{"role": "user", "content": row["shown"]}],
            "completion": [{"role": "assistant", "content": row["said"]}],
        }
        for row in rng.choices(rows, k=size)
    ]


async def record(games: Sequence[GameFile], seed: int, *, python: str | None = None) -> list[dict[str, str]]:
    """What was shown and said in one careless game of each."""
    pool = GamePool(PoolSettings(python=python, processes=1, expert=True))
    rows = []
    try:
        await pool.start()
        pool.expect([str(game.path) for game in games])
        for game in games:
            rng = random.Random(f"careless/{seed}/{game.name}")
            playing = PooledGame(pool, str(game.path))
            env = TextGameEnv(playing, TINY_RULES)
            try:
                shown = await env.reset(Task({}))
                while True:
                    good, commands = playing.expert_command or "look", env.commands
                    said, done = (rng.choice(commands) if rng.random() < SHARE_BLIND else good for _ in range(2))
                    rows.append({"shown": shown.messages[-1]["content"], "said": said})
                    result = await env.step(say(done))
                    if result.terminated or result.truncated or result.observation is None:
                        break
                    shown = result.observation
            finally:
                await env.close()
    finally:
        await pool.close()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path, help="ends in .jsonl.xz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", help="interpreter that has alfworld; this one when left out")
    options = parser.parse_args()
    try:
        rows = asyncio.run(record(find_games(OWN_GAMES, "train"), options.seed, python=options.python))
    except AgentR1Error as error:
        sys.exit(str(error))
    text = "".join(json.dumps(row) + "\n" for row in rows)
    options.file.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))
    print(f"{len(rows)} demonstrations in {options.file}")


if __name__ == "__main__":
    main()
