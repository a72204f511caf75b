"""The embedded inference engine of agentr1, on top of transformers.

Name it in a run file as ``engine: {name: transformers}`` or build ``TransformersEngine`` yourself. Importing this
package imports neither torch nor transformers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentr1_engine_transformers.engine import TransformersEngine

__all__ = ["TransformersEngine"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the engine, and torch with it, when it is first asked for."""
    if name == "TransformersEngine":
        from agentr1_engine_transformers.engine import TransformersEngine

        return TransformersEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
