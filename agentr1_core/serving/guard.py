"""Runs a server and takes it down together with whoever started it, however that ends.

``ServerProcess`` starts this file by its path, with the server's command behind it. The server lives in a process
group of its own, which is ended when the standard input closes (the starter is gone, even if it was killed), on a
signal, or when the server itself ends. It imports the standard library only and nothing of agentr1.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

#: Seconds between asking the server to end and killing what is left of its group.
GRACE_S = 10.0


def main(command: list[str]) -> int:
    """Run ``command`` to its end; its return code."""
    started = threading.Event()

    def take_down() -> None:
        started.wait()
        _end_group(server)

    def end(_signal: int = 0, _frame: FrameType | None = None) -> None:
        threading.Thread(target=take_down, daemon=True).start()

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 1024):
            pass
        end()

    # Before the start: a signal that came just after it would end this process alone, and leave the server.
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    server = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    started.set()
    threading.Thread(target=watch, daemon=True).start()
    code = server.wait()
    _signal_group(server.pid, signal.SIGKILL)  # workers that outlived the server
    return code if code >= 0 else 128 - code


def _end_group(server: "subprocess.Popen[bytes]") -> None:
    _signal_group(server.pid, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    while server.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    _signal_group(server.pid, signal.SIGKILL)


def _signal_group(group: int, which: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended already
        os.killpg(group, which)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
