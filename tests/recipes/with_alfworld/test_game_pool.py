"""The processes that play games: loaded ahead, replaced when they die, ended on every path."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentr1_core.errors import EnvError, PluginError
from agentr1_recipes.alfworld.pool import GamePool, PooledGame, PoolSettings
from agentr1_recipes.alfworld.process import GameProcess, ProcessDied

#: Far beyond what a busy machine needs; what must pass a deadline is stopped instead.
PATIENCE_S = 300.0


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    state = Path(f"/proc/{pid}/stat")
    # Where nobody collects it, a process that has ended is still listed.
    return not (state.is_file() and state.read_text().rpartition(")")[2].split()[0] == "Z")


def with_pool(work, python, **settings):
    """Run ``work(pool)``, and see that afterwards no process of the pool is left."""
    seen = set()

    async def all_of_it():
        pool = GamePool(PoolSettings(python=python, timeout_s=PATIENCE_S, wait_s=PATIENCE_S, **settings))
        await pool.start()
        try:
            return await work(pool)
        finally:
            seen.update(pid_of(slot) for slot in pool._slots if slot.process is not None)
            await pool.close()
            await pool.close()

    result = asyncio.run(all_of_it())
    assert seen
    assert not any(is_running(pid) for pid in seen)
    return result


def pid_of(slot):
    return slot.process._process.pid


def test_a_game_goes_on_when_its_process_is_killed(python, own_games):
    async def work(pool):
        game = PooledGame(pool, str(own_games[0].path))
        first = await game.begin()
        commands = [first.commands[0], "look", first.commands[1]]
        views = [await game.do(each) for each in commands[:2]]
        os.kill(pid_of(game._slot), signal.SIGKILL)
        views.append(await game.do(commands[2]))
        await game.close()
        undisturbed = PooledGame(pool, str(own_games[0].path))
        assert await undisturbed.begin() == first
        assert [await undisturbed.do(each) for each in commands] == views
        await undisturbed.close()
        return pool.n_replaced

    assert with_pool(work, python, processes=1) == 1


def test_the_next_game_loads_while_one_is_played(python, own_games):
    async def work(pool):
        paths = [str(game.path) for game in own_games[:2]]
        pool.expect(paths)
        one = PooledGame(pool, paths[0])
        await one.begin()
        ahead = [slot for slot in pool._idle if slot.game == paths[1]]
        assert len(ahead) == 1
        await ahead[0].loading
        two = PooledGame(pool, paths[1])
        await two.begin()
        assert two._slot is ahead[0]
        assert ahead[0].n_loaded == 1  # it was not loaded again
        await one.close()
        await two.close()

    with_pool(work, python, processes=2)


def test_a_cancelled_episode_gives_its_place_back(python, own_games):
    async def work(pool):
        game = PooledGame(pool, str(own_games[0].path))
        beginning = asyncio.create_task(game.begin())
        await asyncio.sleep(0.1)  # long enough to take the process, too short for a game to load
        beginning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await beginning
        await game.close()
        other = PooledGame(pool, str(own_games[1].path))
        view = await other.begin()
        await other.close()
        return view.commands

    assert "look" in with_pool(work, python, processes=1)


def test_waiting_for_a_process_has_a_deadline(python, own_games):
    async def work(pool):
        game = PooledGame(pool, str(own_games[0].path))
        await game.begin()
        pool.settings = PoolSettings(python=python, processes=1, wait_s=0.05)
        with pytest.raises(EnvError, match=r"(?s)No game process became free.*rollout\.concurrency"):
            await PooledGame(pool, str(own_games[1].path)).begin()
        await game.close()

    with_pool(work, python, processes=1)


def test_a_process_that_hangs_is_ended(python, own_games, tmp_path):
    async def work():
        process = GameProcess(python, tmp_path, "p", start_timeout_s=PATIENCE_S)
        hello = await process.start()
        await process.load(str(own_games[0].path), PATIENCE_S)
        pid = process._process.pid
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(ProcessDied, match=r"did not do 'look' within 0.2 s"):
            await process.command("look", 0.2)
        assert not is_running(pid)
        await process.end()
        return hello

    assert asyncio.run(work())["alfworld"]


def test_a_game_that_cannot_be_loaded_is_named_and_does_no_harm(python, own_games, tmp_path):
    broken = tmp_path / "problem.json"
    broken.write_text('{"goal": "fly", "pddl_problem": "(define"}')

    async def work(pool):
        for path in (broken, tmp_path / "nowhere.tw-pddl"):
            with pytest.raises(EnvError, match=path.name):
                await PooledGame(pool, str(path)).begin()
        game = PooledGame(pool, str(own_games[0].path))
        view = await game.begin()
        await game.close()
        return view

    assert with_pool(work, python, processes=1).commands


def test_an_interpreter_without_alfworld_is_told_with_the_mend(python):
    if python is None:
        pytest.skip("the tests' own interpreter has ALFWorld")

    async def start():
        await GamePool(PoolSettings(python=sys.executable)).start()

    with pytest.raises(PluginError, match=r"(?s)No module named.*pip install 'agentr1-recipes\[alfworld\]'"):
        asyncio.run(start())


def test_processes_end_with_a_trainer_that_is_killed(python, own_games):
    script = f"""
import asyncio
from agentr1_recipes.alfworld.pool import GamePool, PooledGame, PoolSettings

async def play():
    pool = GamePool(PoolSettings(python={python!r}, processes=1))
    await pool.start()
    await PooledGame(pool, {str(own_games[0].path)!r}).begin()
    print(pool._slots[0].process._process.pid, flush=True)
    await asyncio.sleep(3600)

asyncio.run(play())
"""
    trainer = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    pid = int(trainer.stdout.readline())
    assert is_running(pid)
    trainer.kill()
    trainer.wait()
    trainer.stdout.close()
    for _ in range(600):
        if not is_running(pid):
            break
        time.sleep(0.1)
    assert not is_running(pid)
