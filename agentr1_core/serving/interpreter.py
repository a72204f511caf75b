"""What another interpreter has installed, found out without importing any of it.

Engine plugins ask it before they start a server in an environment of its own.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

from agentr1_core.errors import EngineError

_PROBE_S = 60.0
#: A package that can be imported but has no metadata.
UNKNOWN = "unknown"
_PROBE = f"""
import importlib.util, json, sys
from importlib import metadata

found = {{}}
for name in sys.argv[1:]:
    try:
        found[name] = metadata.version(name)
    except metadata.PackageNotFoundError:
        there = name.isidentifier() and importlib.util.find_spec(name) is not None
        found[name] = {UNKNOWN!r} if there else None
print(json.dumps(found))
"""


async def versions_in(python: Path, names: Sequence[str], example: str) -> dict[str, str | None]:
    """Versions of distributions in the environment of an interpreter; ``None`` for one that is not there.

    Args:
        python: The interpreter, from ``engine.python``.
        names: Of the distributions.
        example: An interpreter as it could be named, for the message.

    Raises:
        EngineError: It is no interpreter.
    """
    try:
        done = await asyncio.to_thread(
            subprocess.run, [str(python), "-c", _PROBE, *names],
            capture_output=True, text=True, timeout=_PROBE_S, check=True,
        )  # fmt: skip
        found: dict[str, str | None] = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError) as error:
        raise EngineError(
            f"`engine.python`: '{python}' could not be asked for its packages: {error}",
            f"Name the interpreter of the server's environment, such as {example}.",
        ) from error
    return found
