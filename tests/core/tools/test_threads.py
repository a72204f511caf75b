"""Plain functions that block: they neither starve each other nor hold up the end of the program."""

import asyncio
import subprocess
import sys
import threading

import pytest

from agentr1_core.threads import call_in_thread


def test_calls_that_hang_do_not_starve_others(run):
    release = threading.Event()

    async def many():
        hanging = [asyncio.ensure_future(call_in_thread(release.wait)) for _ in range(100)]
        answer = await call_in_thread(pow, 2, 10)
        release.set()
        await asyncio.gather(*hanging)
        return answer

    assert run(many()) == 1024


def test_program_ends_although_a_call_still_hangs():
    program = """
import asyncio, threading
from agentr1_core.threads import call_in_thread

async def main():
    try:
        async with asyncio.timeout(0.05):
            await call_in_thread(threading.Event().wait)
    except TimeoutError:
        print("gave up")

asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "gave up\n"


@pytest.mark.parametrize(
    ("error", "seen"), [(KeyError("x"), KeyError), (SystemExit(3), RuntimeError), (StopIteration(), RuntimeError)]
)
def test_errors_reach_the_caller(run, error, seen):
    def fail():
        raise error

    with pytest.raises(seen):
        run(call_in_thread(fail))
