"""What this distribution offers to agentr1: one training backend, named ``trl``.

The plugin manager imports this module at discovery; it never imports torch or TRL.
"""

from __future__ import annotations

from agentr1_core.plugins import hookimpl

agentr1_api_version = 1


@hookimpl
def agentr1_backends() -> dict[str, str]:
    """The backend's class, imported at use."""
    return {"trl": "agentr1_backend_trl.backend:TRLBackend"}
