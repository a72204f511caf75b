"""A door keeper for all routes of the server. vLLM's own API key leaves the routes that change weights open.

vLLM loads it through ``--middleware``; the token comes in the environment, where other users cannot read it.
"""

from __future__ import annotations

import hmac
import os
from typing import Any

VARIABLE = "AGENTR1_SERVER_TOKEN"


class RequireToken:
    """ASGI middleware: 401 for every request without the bearer token.

    Raises:
        RuntimeError: The environment has no token.
    """

    def __init__(self, app: Any) -> None:
        token = os.environ.get(VARIABLE)
        if not token:
            raise RuntimeError(f"{VARIABLE} is not set")
        self._app = app
        self._wanted = f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "lifespan":
            given = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._wanted):
                await _refuse(scope, send)
                return
        await self._app(scope, receive, send)


async def _refuse(scope: Any, send: Any) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})
        return
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": 401, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"error": "the bearer token is missing or wrong"}'})
