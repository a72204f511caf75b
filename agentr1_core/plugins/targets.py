"""Import what ``"package.module:Class"`` names, and say in one line why that failed.

The manager uses it for offers and for local classes that nobody published. It never hides the original
exception: callers chain it.
"""

from __future__ import annotations

import importlib
import re
import traceback
from pathlib import Path
from typing import Any

import pluggy

#: Frames that say nothing about a plugin: this package's own and pluggy's.
_MACHINERY = (str(Path(__file__).parent), str(Path(pluggy.__file__).parent))
_TARGET = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def is_target(text: str) -> bool:
    """Whether the text has the form ``package.module:Class`` (or ``:Class.attribute``)."""
    return _TARGET.fullmatch(text) is not None


def import_target(target: str) -> Any:
    """The object named by ``"package.module:Class"``.

    Raises:
        ImportError: The module cannot be imported.
        AttributeError: The module has no such attribute.
        Exception: Whatever else the module raises while it is imported.
    """
    module_name, _, path = target.partition(":")
    found: Any = importlib.import_module(module_name)
    for attribute in path.split("."):
        found = getattr(found, attribute)
    return found


def reason(error: BaseException) -> str:
    """The error in one line, with the file and line of the plugin's code it came from."""
    text = str(error).strip().splitlines()
    line = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
    if isinstance(error, SyntaxError):
        return line  # its text already names the file and the line
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(_MACHINERY) and "importlib" not in frame.filename
    ]
    return f"{line} ({frames[-1].filename}, line {frames[-1].lineno})" if frames else line
