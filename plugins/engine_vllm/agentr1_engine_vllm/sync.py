"""Giving one server new weights, so that afterwards nothing old is left: no token, no cached prefix.

The engine has one ``ServerSync`` for each of its servers. It is told to push after an update, and again when a server
came back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any, Literal

from agentr1_core.errors import EngineError
from agentr1_core.serving import KeptFolder, KeptWeights, ServerClient
from agentr1_engine_vllm.broadcast import Broadcaster

#: Blocks of the prefix cache may be held for a moment by actions that just ended.
_RESET_TRIES, _RESET_WAIT_S = 50, 0.1


class ServerSync:
    """The weights of one server.

    Args:
        client: The server.
        broadcaster: Carries weights that come as tensors.
        served_name: Under which requests ask for the whole weights.
        on_update: Whether actions in flight go on under new weights, recomputed, or finish before.
        timeout_s: Seconds for the longest of the requests.
    """

    def __init__(
        self,
        client: ServerClient,
        broadcaster: Broadcaster,
        *,
        served_name: str,
        on_update: Literal["continue", "finish"],
        timeout_s: float,
    ) -> None:
        self._client = client
        self._broadcaster = broadcaster
        self._served_name = served_name
        self._adapter_name = f"{served_name}-adapter"
        self._on_update = on_update
        self._timeout_s = timeout_s
        #: vLLM's number of the adapter, once this engine has had it loaded.
        self._adapter: int | None = None

    @property
    def model(self) -> str:
        """Under which name requests get the current weights."""
        return self._served_name if self._adapter is None else self._adapter_name

    async def push(self, weights: KeptWeights) -> None:
        """Load weights and label them.

        Args:
            weights: Whole ones, an adapter, or both; files must be where the server sees them too.

        Raises:
            EngineError: They could not be loaded, or old cached prefixes could not be dropped. The server may have any
                weights then and must not be used until a later push succeeds.
        """
        weights.check()
        is_whole = weights.whole is not None or weights.tensors is not None
        if self._adapter is not None and not await self._knows_adapter():
            self._adapter = None  # it was started again
        # An action in flight keeps the name it asked for, so it finishes before the name of the weights changes.
        renamed = (weights.adapter is None) == (self._adapter is not None)
        await self._post("/pause", query={"mode": "wait" if renamed or self._on_update == "finish" else "keep"})
        try:
            if weights.tensors is not None:
                await self._broadcaster.send(weights.tensors)
            elif is_whole:
                await self._rpc("agentr1_load_weights", str(weights.folder))
            if weights.adapter is not None:
                await self._load_adapter(weights.adapter)
            elif self._adapter is not None:
                await self._forget_adapter()
            await self._drop_prefixes()
            await self._post("/update_weight_version", {"new_version": str(weights.version)})
        except BaseException:
            # Whatever runs would go on under weights that nobody knows.
            with contextlib.suppress(EngineError):
                await self._post("/abort_requests", {})
            raise
        finally:
            await self._post("/resume")

    def close(self) -> None:
        """Leave the group with the server, if there is one; idempotent."""
        self._broadcaster.forget()

    async def _load_adapter(self, adapter: KeptFolder) -> None:
        folder = str(adapter.path)
        if self._adapter is not None:
            await self._rpc("agentr1_swap_adapter", str(self._adapter), self._adapter_name, folder)
            return
        before = await self._adapters(rank_of(adapter.path))
        if await self._knows_adapter():  # of an engine that used this server before
            await self._forget_adapter()
        await self._post("/v1/load_lora_adapter", {"lora_name": self._adapter_name, "lora_path": folder}, as_json=False)
        new = await self._adapters() - before
        if len(new) != 1:
            raise EngineError(f"{self._client.url} took an adapter and has {len(new)} new ones.")
        (self._adapter,) = new

    async def _forget_adapter(self) -> None:
        self._adapter = None
        await self._post("/v1/unload_lora_adapter", {"lora_name": self._adapter_name}, as_json=False)

    async def _knows_adapter(self) -> bool:
        models = (await self._client.get("/v1/models")).get("data", [])
        return any(model.get("id") == self._adapter_name for model in models)

    async def _adapters(self, rank: int = 0) -> set[int]:
        """vLLM's numbers of the adapters there; an ``EngineError`` where one of ``rank`` has no room."""
        said = (await self._rpc("agentr1_lora"))["results"][0]
        if said["max_rank"] is None or said["max_rank"] < rank:
            raise EngineError(
                f"{self._client.url} has no room for a LoRA adapter of rank {rank}; its largest is {said['max_rank']}.",
                "Raise `engine.lora_rank`, or start the server with --max-lora-rank.",
            )
        return {int(number) for number in said["adapters"]}

    async def _drop_prefixes(self) -> None:
        for _ in range(_RESET_TRIES):
            answer = await self._post("/reset_prefix_cache", query={"reset_running_requests": "true"})
            if isinstance(answer, dict) and answer.get("success") is True:
                return
            await asyncio.sleep(_RESET_WAIT_S)
        raise EngineError(f"{self._client.url} did not drop its cached prefixes, which belong to older weights.")

    async def _rpc(self, method: str, *args: str) -> Any:
        return await self._post("/collective_rpc", {"method": method, "args": list(args), "timeout": self._timeout_s})

    async def _post(self, path: str, body: Any = None, **more: Any) -> Any:
        return await self._client.post(path, body, timeout_s=self._timeout_s, **more)


def rank_of(folder: Path) -> int:
    """The largest rank of an adapter in PEFT's layout.

    Raises:
        EngineError: Its configuration cannot be read.
    """
    try:
        config = json.loads((folder / "adapter_config.json").read_text())
        return max([int(config["r"]), *(int(rank) for rank in (config.get("rank_pattern") or {}).values())])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise EngineError(f"The adapter_config.json of an adapter is not understood: {error}") from error
