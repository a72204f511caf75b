"""Giving one server new weights, so that afterwards nothing old is left: no token, no cached prefix.

The engine calls ``push`` for each of its servers after an update, and again for a server that came back. How the
weights travel is a ``Load``; what stands around it is the same for all.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Literal

from agentr1_core.errors import EngineError
from agentr1_core.serving import KeptWeights, ServerClient, ServerFault

#: Sends the weights to a server that has been told to pause, drops its cached prefixes and labels them.
Load = Callable[[], Awaitable[None]]


async def push(
    client: ServerClient,
    weights: KeptWeights,
    load: Load,
    on_update: Literal["continue", "finish"],
    timeout_s: float,
) -> None:
    """Load weights into a server and label them.

    Args:
        client: The server.
        weights: Of the new version.
        load: How they travel.
        on_update: Whether actions in flight go on under the new weights, recomputed, or finish before.
        timeout_s: Seconds for the longest of the requests.

    Raises:
        EngineError: They could not be loaded, or old cached prefixes could not be dropped. The server may have any
            weights then and must not be used until a later push succeeds.
    """
    weights.check()
    # Without a pause SGLang itself waits for what is in flight. Only `retract` computes contexts anew: `in_place` goes
    # on with keys and values of the old weights, so that what it samples belongs to neither.
    pause = on_update == "continue"
    try:
        if pause:
            await client.post("/pause_generation", {"mode": "retract"}, timeout_s=timeout_s)
        await load()
        said = (await client.get("/model_info")).get("weight_version")
        if said != str(weights.version):
            raise EngineError(f"{client.url} says that it has weights {said!r} after an update to {weights.version}.")
    except BaseException:
        # Whatever runs would go on under weights that nobody knows.
        with contextlib.suppress(EngineError):
            await client.post("/abort_request", {"abort_all": True})
        raise
    finally:
        if pause:
            await client.post("/continue_generation", {})


async def load_files(client: ServerClient, weights: KeptWeights, timeout_s: float) -> None:
    """The server reads the files itself, and drops its cached prefixes."""
    body = {
        "model_path": str(weights.folder),
        "weight_version": str(weights.version),
        "flush_cache": True,
        "abort_all_requests": False,
    }
    check_done(await client.post("/update_weights_from_disk", body, timeout_s=timeout_s), client)


def check_done(answer: object, client: ServerClient) -> None:
    """Raises ``ServerFault`` when the answer to a weight route says that it failed."""
    if not isinstance(answer, dict) or answer.get("success") is not True:
        raise ServerFault(f"{client.url} could not load the weights: {str(answer)[:300]}")
