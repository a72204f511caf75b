"""OpenRLHF's parsed arguments, defaults included, without starting anything."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from typing import Any

import ray

from agentr1_backend_openrlhf.private_names import NAMES, find, rebind


class _Parsed(Exception):
    """Carries the arguments out of OpenRLHF's command line."""


def parse(argv: Sequence[str]) -> Any:
    """What OpenRLHF makes of its command line."""

    def stop(args: Any) -> Any:
        raise _Parsed(args)

    before, initialized, words = find("get_strategy"), ray.is_initialized, sys.argv
    sys.argv = ["openrlhf", *argv]
    ray.is_initialized = lambda: True
    rebind("get_strategy", stop)
    try:
        runpy.run_module(NAMES["command"][0], run_name="__main__")
    except _Parsed as parsed:
        return parsed.args[0]
    finally:
        sys.argv = words
        rebind("get_strategy", before)
        ray.is_initialized = initialized
    raise AssertionError("OpenRLHF did not reach its strategy")
