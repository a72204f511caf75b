"""A Ray head for tests on a machine that is busy and has no GPU."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

START_TIMEOUT_S, STOP_TIMEOUT_S, ATTEMPTS = 300.0, 30.0, 5

#: Ray would start a worker for each of its CPUs beforehand, none of which fits a launch's own environment, and give all
#: workers a low priority.
_WORKERS = {"RAY_prestart_worker_first_driver": "0", "RAY_enable_worker_prestart": "0", "RAY_worker_niceness": "0"}


def free_ports(n: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]


@contextlib.contextmanager
def ray_head(environment: Mapping[str, str], log: Path) -> Iterator[str]:
    """Start a head and give its address; all of Ray's processes are gone afterwards.

    The ports of its agents are fixed, as far as they can be: the head otherwise waits fifteen seconds for them to name
    theirs and then gives up. On a machine with a high load that still happens, so it is tried a few times.
    """
    for attempt in range(ATTEMPTS):
        with contextlib.ExitStack() as stack:
            try:
                address = stack.enter_context(_head(environment, log))
            except _NotStarted:
                if attempt == ATTEMPTS - 1:
                    raise
                continue
            yield address
            return


class _NotStarted(AssertionError):
    """The head gave up."""


@contextlib.contextmanager
def _head(environment: Mapping[str, str], log: Path) -> Iterator[str]:
    port, *agents = free_ports(6)
    names = (
        "--dashboard-agent-grpc-port",
        "--dashboard-agent-listen-port",
        "--runtime-env-agent-port",
        "--metrics-export-port",
        "--ray-client-server-port",
    )
    folder = tempfile.mkdtemp(prefix="r1-", dir="/tmp")  # paths of sockets must be short
    command = [
        *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"),
        *("--node-ip-address", "127.0.0.1", "--port", str(port), "--num-cpus", "4", "--num-gpus", "4"),
        *("--include-dashboard", "false", "--temp-dir", folder, "--object-store-memory", str(256 * 1024**2)),
        *(word for name, agent in zip(names, agents, strict=True) for word in (name, str(agent))),
    ]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            env={**environment, **_WORKERS},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            _wait(process, log)
            yield f"127.0.0.1:{port}"
        finally:
            for how in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, how)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(STOP_TIMEOUT_S)
            shutil.rmtree(folder, ignore_errors=True)


def _wait(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while "Ray runtime started." not in log.read_text(errors="replace"):
        if process.poll() is not None or time.monotonic() > deadline:
            raise _NotStarted(f"Ray did not start: {log.read_text(errors='replace')}")
        time.sleep(0.2)
