"""A server process is started, found ready, started again after a crash, and ended with its starter."""

import asyncio
import os
import subprocess
import sys
import time

import pytest

from agentr1_core.errors import EngineError
from agentr1_core.serving import ManagedServer, ServerProcess, managed


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    monkeypatch.setattr(managed, "LOOK_S", 0.02)


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A process that has ended but was not waited for is still listed.
    state = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(state.strip()) and not state.startswith("Z")


def managing(server, **changes):
    settings = {"startup_timeout_s": 20.0, "max_restarts": 1, **changes}
    return ManagedServer("small", server.process, server.is_ready, **settings)


def test_it_serves_until_it_is_stopped(small_server, run, capfd):
    server = small_server()

    async def work():
        owner = managing(server)
        await owner.start()
        pid = await server.pid()
        was_alive = alive(pid)
        await owner.stop()
        await owner.stop()
        return pid, was_alive

    pid, was_alive = run(work())
    assert was_alive
    assert not alive(pid)
    assert server.log.read_text() == "serving\n"
    assert "[small server] ready after" in capfd.readouterr().err


def test_after_a_crash_it_is_started_again_as_often_as_it_may(small_server, run):
    server = small_server()
    lost, back, over = [], [], []

    async def work():
        owner = managing(server)
        await owner.start()

        async def returned():
            back.append(await server.pid())

        owner.watch(lost.append, returned, over.append)
        first = await server.pid()
        with pytest.raises(EngineError):
            await server.client.get("/die")
        while not back:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        with pytest.raises(EngineError):
            await server.client.get("/die")
        while not over:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await owner.stop()
        return first

    first = run(work())
    assert len(back) == 1
    assert back != [first]
    assert "exit code 3" in lost[0]
    assert "gone after 1 restarts" in str(over[0])


def test_a_fault_that_is_none_of_the_server_s_neither_ends_the_watch_nor_leaves_it_running(small_server, run, capfd):
    server = small_server()
    over = []

    async def work():
        owner = managing(server)
        await owner.start()

        async def returned():
            raise FileNotFoundError("the weights are gone")

        owner.watch(lambda cause: None, returned, over.append)
        with pytest.raises(EngineError):
            await server.client.get("/die")
        while not over:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await owner.stop()
        return owner.runs, await server.is_ready()

    assert run(work()) == (False, False)
    assert "gone after 1 restarts" in str(over[0])
    assert "FileNotFoundError: the weights are gone" in capfd.readouterr().err


def test_a_server_that_ends_while_starting_says_why(small_server, run):
    server = small_server("raise RuntimeError('no such model')")
    with pytest.raises(EngineError, match=r"exit code 1.*RuntimeError: no such model") as caught:
        run(managing(server).start())
    assert str(server.log) in str(caught.value)


def test_a_server_that_never_gets_ready_is_ended(small_server, run):
    server = small_server("import os, time; print(os.getpid(), flush=True); time.sleep(60)")
    with pytest.raises(EngineError, match="not ready after 1 s; it last said"):
        run(managing(server, startup_timeout_s=1.0).start())
    assert not alive(int(server.log.read_text()))


def test_a_program_that_does_not_exist_says_so(run, tmp_path):
    process = ServerProcess([str(tmp_path / "nothing")], {}, tmp_path / "log")
    process.start()
    while process.runs:
        time.sleep(0.01)
    assert "nothing" in process.cause()


def test_the_server_ends_with_a_starter_that_is_killed(small_server, run, tmp_path):
    server = small_server()
    starter = (
        "import sys, time; from pathlib import Path; from agentr1_core.serving import ServerProcess;"
        "ServerProcess([sys.executable, '-c', sys.argv[1], sys.argv[2]], {}, Path(sys.argv[3])).start(); time.sleep(60)"
    )
    command = [sys.executable, "-c", starter, server.script, str(server.port), str(server.log)]
    process = subprocess.Popen(command)

    async def work():
        while not await server.is_ready():  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        pid = await server.pid()
        process.kill()
        process.wait()
        for _ in range(500):
            if not alive(pid):
                return True
            await asyncio.sleep(0.01)
        return False

    assert run(work())


def test_a_server_that_is_stopped_while_it_is_being_started_ends_too():
    starter = (
        "import os, signal, subprocess, sys; from agentr1_core.serving import guard; start = subprocess.Popen\n"
        "def started(*args, **told):\n"
        "    server = start(*args, **told)\n"
        "    print(server.pid, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    return server\n"
        "subprocess.Popen = started\n"
        "sys.exit(guard.main([sys.executable, '-c', 'import time; time.sleep(60)']))"
    )
    command = [sys.executable, "-c", starter]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        pid = int(process.stdout.readline())
        process.wait(50)
    try:
        assert not alive(pid)
    finally:
        if alive(pid):
            os.kill(pid, 9)
