"""``VLLMEngine``: the engine contract on one or several vLLM servers.

The collector and the training backends call it. It starts a server of its own or uses those it is given, sends token
ids and reads token ids over HTTP, and never imports vLLM or torch itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from agentr1_core.engine import EngineCapabilities, Generation, SamplingParams
from agentr1_core.errors import ConfigError, EngineError
from agentr1_core.mdp import TokenArray
from agentr1_core.serving import (
    Call,
    KeptWeights,
    ServedEngine,
    ServerClient,
    Servers,
    log_file,
    start_server,
    use_servers,
)
from agentr1_engine_vllm import checks, wire
from agentr1_engine_vllm.broadcast import Broadcaster, copy_to_host
from agentr1_engine_vllm.launch import plan_launch
from agentr1_engine_vllm.settings import VLLMSettings
from agentr1_engine_vllm.sync import ServerSync

#: Seconds in which a healthy server says so.
HEALTH_S = 5.0


class VLLMEngine(ServedEngine):
    """vLLM behind the engine contract.

    Args:
        settings: Which server to start, or which ones to use.
    """

    name: ClassVar[str] = "vllm"
    Settings: ClassVar[type[VLLMSettings]] = VLLMSettings

    def __init__(self, settings: VLLMSettings | None = None) -> None:
        self._own = settings or VLLMSettings()
        if not self._own.urls and self._own.model is None:
            raise ConfigError(
                "The vllm engine needs a model: `model` is not set, and neither are `urls` of running servers.",
                "Set `engine.model` to a folder or hub id.",
            )
        super().__init__(self._own)
        self._syncs: dict[str, ServerSync] = {}
        self._max_context = self._own.max_model_len

    @property
    def capabilities(self) -> EngineCapabilities:
        """What it can do; the context is known once it has started."""
        routes = {"file"}
        if self._own.weight_sync == "broadcast":
            routes.add("state_dict")
        if self._own.lora == "adapter":
            routes.add("lora")
        return EngineCapabilities(
            logprobs=True,
            prefix_cache=True,
            weight_sync=frozenset(routes),
            abort=True,
            seed=True,
            max_context=self._max_context,
        )

    async def open_servers(self, scratch: Path) -> Servers:
        """Start a server, or find those in ``urls``."""
        servers = await (use_servers(self._own, self._check) if self._own.urls else self._launch(scratch))
        settings = self._own
        self._syncs = {
            member.client.url: ServerSync(
                member.client,
                Broadcaster(member.client, scratch, settings.request_timeout_s),
                served_name=settings.served_name,
                on_update=settings.on_update,
                timeout_s=settings.request_timeout_s,
            )
            for member in servers.members
        }
        return servers

    async def close(self) -> None:
        """End the server that was started, and every call that waits; idempotent."""
        syncs, self._syncs = self._syncs, {}
        for server in syncs.values():
            server.close()
        await super().close()

    async def ask(
        self, client: ServerClient, call: Call, prompt: TokenArray, sampling: SamplingParams, max_tokens: int
    ) -> Generation:
        """Sample one action on one server."""
        body = wire.request_body(call.id, self._sync(client).model, prompt, sampling, max_tokens)
        return wire.read_generation(await client.post(wire.GENERATE, body), sampling, max_tokens)

    async def stop_call(self, client: ServerClient, call: Call) -> None:
        """End an action early; its answer has what was sampled."""
        await client.post(wire.ABORT, {"request_ids": [wire.REQUEST_PREFIX + call.id]})

    async def push(self, client: ServerClient, weights: KeptWeights) -> None:
        """Load weights into one server."""
        await self._sync(client).push(weights)

    def copy_tensors(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """Copies in this machine's memory, for a server that comes back."""
        return copy_to_host(tensors)

    async def is_healthy(self, client: ServerClient) -> bool:
        """Whether it answers."""
        try:
            await client.get("/health", timeout_s=HEALTH_S)
        except EngineError:
            return False
        return True

    def _sync(self, client: ServerClient) -> ServerSync:
        try:
            return self._syncs[client.url]
        except KeyError:
            raise EngineError(f"The {self.name} engine was closed.") from None

    async def _launch(self, scratch: Path) -> Servers:
        settings, model = self._own, str(self._own.model)
        found = await checks.look_at(settings.python)
        checks.check_model(model, settings, found.cpu)
        launch = plan_launch(settings, model, found, scratch, log_file(settings.run_dir, self.name))
        return await start_server(self.name, launch, settings, self.is_healthy, self._check)

    async def _check(self, client: ServerClient) -> int:
        return await checks.check_server(client, self._own)
