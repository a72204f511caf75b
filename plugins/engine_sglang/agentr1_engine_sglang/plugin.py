"""What this distribution offers to agentr1: one engine, named ``sglang``.

The plugin manager imports this module at discovery; it never imports SGLang or torch.
"""

from __future__ import annotations

from agentr1_core.plugins import hookimpl

agentr1_api_version = 1


@hookimpl
def agentr1_engines() -> dict[str, str]:
    """The engine's class, imported at use."""
    return {"sglang": "agentr1_engine_sglang.engine:SGLangEngine"}
