"""The pool's book-keeping of its processes, with an interpreter that stands in for one with ALFWorld."""

import asyncio
import sys

from agentr1_recipes.alfworld.pool import GamePool, PoolSettings

INTERPRETER = """#!{python}
import json, os, sys, time
while os.path.exists({gate!r}):
    time.sleep(0.01)
print(json.dumps({{"alfworld": "0", "textworld": "0"}}), flush=True)
for line in sys.stdin:
    seen = {{"text": json.loads(line)["game"], "commands": [], "state": "s", "won": False, "expert": None}}
    print(json.dumps(seen), flush=True)
"""


def test_a_process_whose_start_nobody_waits_for_is_not_used_again(tmp_path):
    """It still owes its first line: every later answer would be taken for the one before."""
    gate, python = tmp_path / "not yet", tmp_path / "python"
    python.write_text(INTERPRETER.format(python=sys.executable, gate=str(gate)))
    python.chmod(0o755)

    async def play():
        pool = GamePool(PoolSettings(python=str(python), processes=1, games_per_process=1))
        await pool.start()
        try:
            slot, _ = await pool.take("first")
            await pool.give_back(slot)
            gate.touch()
            waiting = asyncio.create_task(pool.take("second"))  # in a new process
            old = slot.process
            while slot.process is old or slot.process._process is None:  # noqa: ASYNC110 - nobody tells of it
                await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.wait({waiting})
            gate.unlink()
            _, (view, _) = await pool.take("third")
            return view.text
        finally:
            await pool.close()

    assert asyncio.run(asyncio.wait_for(play(), 120)) == "third"
