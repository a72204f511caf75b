"""Any OpenAI-compatible chat endpoint as an engine of agentr1: it plays in evaluation and rollouts.

Name it in a run file as ``engine: {name: openai, base_url: ..., model: ...}`` or build ``OpenAIEngine`` yourself. It
needs no tokenizer, no model files and no torch, and what it plays cannot be trained.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentr1_engine_openai.engine import OpenAIEngine

__all__ = ["OpenAIEngine"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the engine when it is first asked for."""
    if name == "OpenAIEngine":
        from agentr1_engine_openai.engine import OpenAIEngine

        return OpenAIEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
