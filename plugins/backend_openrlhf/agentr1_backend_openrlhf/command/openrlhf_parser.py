"""OpenRLHF's own argument parser, taken from its source without importing OpenRLHF.

OpenRLHF builds its parser under ``if __name__ == "__main__"``, behind imports of torch, Ray and vLLM. ``read_parser``
runs only the statements that build it. The tests and ``options`` call it; nothing is parsed or trained here.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
from datetime import datetime
from pathlib import Path

#: The command line that is translated to, below the folder of the package ``openrlhf``.
COMMAND_LINE = Path("cli", "train_ppo_ray.py")


def installed_source() -> Path | None:
    """The file of OpenRLHF's command line in this environment; ``None`` without OpenRLHF."""
    found = importlib.util.find_spec("openrlhf")  # a top-level package: this does not import it
    for folder in found.submodule_search_locations or () if found is not None else ():
        if (source := Path(folder) / COMMAND_LINE).is_file():
            return source
    return None


def read_parser(source: Path) -> argparse.ArgumentParser:
    """The parser that OpenRLHF's command line in ``source`` builds.

    Raises:
        ValueError: The file does not build one as OpenRLHF 0.11 does.
    """
    tree = ast.parse(source.read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)]
    building: list[ast.stmt] = []
    for statement in blocks[0].body if blocks else ():
        if ".parse_args(" in ast.unparse(statement):
            break
        building.append(statement)
    scope = {"argparse": argparse, "os": os, "datetime": datetime}
    try:
        exec(compile(ast.Module(building, []), str(source), "exec"), scope)
    except Exception as error:  # whatever another version does there
        raise ValueError(f"{source} builds its parser in another way ({error!r})") from error
    parser = scope.get("parser")
    if not isinstance(parser, argparse.ArgumentParser):
        raise ValueError(f"{source} builds no argument parser where OpenRLHF 0.11 does")
    return parser
