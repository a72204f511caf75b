"""Giving one server new weights, so that afterwards nothing old is left: no token, no cached prefix.

The engine calls ``push`` for each of its servers after an update, and again for a server that came back.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Literal

from agentr1_core.errors import EngineError
from agentr1_core.serving import KeptWeights, ServerClient

#: Blocks of the prefix cache may be held for a moment by actions that just ended.
_RESET_TRIES, _RESET_WAIT_S = 50, 0.1


async def push(
    client: ServerClient, weights: KeptWeights, on_update: Literal["continue", "finish"], timeout_s: float
) -> None:
    """Load weights into a server and label them.

    Args:
        client: The server.
        weights: In a folder that it sees too.
        on_update: Whether actions in flight go on under the new weights, recomputed, or finish before.
        timeout_s: Seconds for the longest of the requests.

    Raises:
        EngineError: They could not be loaded, or old cached prefixes could not be dropped. The server may have any
            weights then and must not be used until a later push succeeds.
    """
    weights.check()
    mode = "keep" if on_update == "continue" else "wait"
    await client.post("/pause", query={"mode": mode}, timeout_s=timeout_s)
    try:
        load = {"method": "agentr1_load_weights", "args": [str(weights.folder)], "timeout": timeout_s}
        await client.post("/collective_rpc", load, timeout_s=timeout_s)
        await _drop_prefixes(client)
        await client.post("/update_weight_version", {"new_version": str(weights.version)})
    except BaseException:
        # Whatever runs would go on under weights that nobody knows.
        with contextlib.suppress(EngineError):
            await client.post("/abort_requests", {})
        raise
    finally:
        await client.post("/resume")


async def _drop_prefixes(client: ServerClient) -> None:
    for _ in range(_RESET_TRIES):
        answer = await client.post("/reset_prefix_cache", query={"reset_running_requests": "true"})
        if isinstance(answer, dict) and answer.get("success") is True:
            return
        await asyncio.sleep(_RESET_WAIT_S)
    raise EngineError(f"{client.url} did not drop its cached prefixes, which belong to older weights.")
