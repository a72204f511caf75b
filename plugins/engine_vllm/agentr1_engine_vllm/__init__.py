"""vLLM as an inference engine of agentr1: a server in its own environment, driven over HTTP.

Name it in a run file as ``engine: {name: vllm}`` or build ``VLLMEngine`` yourself. Importing this package imports
neither vLLM nor torch; only ``agentr1_engine_vllm.worker_extension``, which the server loads, does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentr1_engine_vllm.engine import VLLMEngine

__all__ = ["VLLMEngine"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Load the engine when it is first asked for."""
    if name == "VLLMEngine":
        from agentr1_engine_vllm.engine import VLLMEngine

        return VLLMEngine
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
