"""What this distribution offers to agentr1: the backend ``openrlhf``, and the engine ``openrlhf`` inside it.

The plugin manager imports this module at discovery; it never imports torch, Ray or OpenRLHF.
"""

from __future__ import annotations

from agentr1_core.plugins import hookimpl

agentr1_api_version = 1


@hookimpl
def agentr1_backends() -> dict[str, str]:
    """The backend's class, imported at use."""
    return {"openrlhf": "agentr1_backend_openrlhf.backend:OpenRLHFBackend"}


@hookimpl
def agentr1_engines() -> dict[str, str]:
    """OpenRLHF's own vLLM engines, which only its launches have."""
    return {"openrlhf": "agentr1_backend_openrlhf.own_engine:OpenRLHFEngine"}
