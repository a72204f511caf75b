"""SGLang as an inference engine of agentr1: a server in its own environment, driven over HTTP.

Name it in a run file as ``engine: {name: sglang}`` or build ``SGLangEngine`` yourself. This package never imports
SGLang; it imports torch only where tensors are handed over, which a trainer has anyway.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentr1_engine_sglang.engine import SGLangEngine

__all__ = ["SGLangEngine"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the engine when it is first asked for."""
    if name == "SGLangEngine":
        from agentr1_engine_sglang.engine import SGLangEngine

        return SGLangEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
