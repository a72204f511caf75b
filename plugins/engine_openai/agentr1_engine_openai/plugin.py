"""What this distribution offers to agentr1: one engine, named ``openai``."""

from __future__ import annotations

from agentr1_core.plugins import hookimpl

agentr1_api_version = 1


@hookimpl
def agentr1_engines() -> dict[str, str]:
    """The engine's class, imported at use."""
    return {"openai": "agentr1_engine_openai.engine:OpenAIEngine"}
