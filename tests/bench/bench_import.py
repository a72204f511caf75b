"""How long the core takes to import and the command to start, warm.

Each figure is the median wall-clock time of fresh Python processes; the bare start of Python is given beside
them. The last line is one JSON object, in seconds. Run it with ``make bench-import``.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPEATS = 15

COMMANDS = {
    "python_start_s": [sys.executable, "-c", "pass"],
    "import_pluggy_s": [sys.executable, "-c", "import pluggy"],
    "import_core_s": [sys.executable, "-c", "import agentr1_core"],
    "import_plugins_s": [sys.executable, "-c", "import agentr1_core.plugins"],
    "help_s": [str(Path(sys.executable).with_name("agentr1")), "--help"],
    "plugins_s": [str(Path(sys.executable).with_name("agentr1")), "plugins"],
}


def seconds(command: list[str]) -> float:
    """Median wall-clock seconds of ``REPEATS`` runs, after one that warms the caches."""
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
    taken = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def main() -> None:
    """Measure every command and print the figures."""
    figures = {name: round(seconds(command), 4) for name, command in COMMANDS.items()}
    for name, value in figures.items():
        print(f"{name:20s} {value:.3f}")
    print(json.dumps({"repeats": REPEATS, **figures}))


if __name__ == "__main__":
    main()
