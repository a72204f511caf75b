"""What this distribution offers to agentr1: one engine, named ``transformers``.

The plugin manager imports this module at discovery; it never imports torch.
"""

from __future__ import annotations

from agentr1_core.plugins import hookimpl

agentr1_api_version = 1


@hookimpl
def agentr1_engines() -> dict[str, str]:
    """The engine's class, imported at use."""
    return {"transformers": "agentr1_engine_transformers.engine:TransformersEngine"}
