"""``SGLangEngine``: the engine contract on one or several SGLang servers.

The collector and the training backends call it. It starts a server of its own or uses those it is given, sends token
ids and reads token ids over HTTP, and never imports SGLang itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from agentr1_core.engine import EngineCapabilities, Generation, SamplingParams, WeightSource
from agentr1_core.errors import ConfigError, EngineError
from agentr1_core.mdp import TokenArray
from agentr1_core.serving import (
    Call,
    KeptWeights,
    ServedEngine,
    ServerClient,
    ServerFault,
    Servers,
    ServerUnreachable,
    log_file,
    start_server,
    use_servers,
)
from agentr1_engine_sglang import checks, sync, wire
from agentr1_engine_sglang.broadcast import send_by_broadcast
from agentr1_engine_sglang.launch import plan_launch, runs_on_cpu
from agentr1_engine_sglang.memory import Memory
from agentr1_engine_sglang.settings import SGLangSettings
from agentr1_engine_sglang.shapes import Shapes, check_shapes, shapes_of_files, shapes_of_tensors
from agentr1_engine_sglang.tensors import distinct, send_through_memory

#: Seconds in which a healthy server says so.
HEALTH_S = 5.0


class SGLangEngine(ServedEngine):
    """SGLang behind the engine contract.

    Args:
        settings: Which server to start, or which ones to use.
    """

    name: ClassVar[str] = "sglang"
    Settings: ClassVar[type[SGLangSettings]] = SGLangSettings

    def __init__(self, settings: SGLangSettings | None = None) -> None:
        self._own = settings or SGLangSettings()
        if not self._own.urls and self._own.model is None:
            raise ConfigError(
                "The sglang engine needs a model: `model` is not set, and neither are `urls` of running servers.",
                "Set `engine.model` to a folder or hub id.",
            )
        super().__init__(self._own)
        self._max_context = self._own.context_length
        self._abilities: dict[str, checks.Abilities] = {}
        self._router: ServerClient | None = None
        self._vocabulary: int | None = None
        self._shapes: Shapes = {}
        self._memory: Memory | None = None
        #: Aborts of calls that nobody waits for any more.
        self._behind: set[asyncio.Task[None]] = set()

    @property
    def capabilities(self) -> EngineCapabilities:
        """What it can do; the servers are asked when it starts."""
        asked = self._abilities.values()
        routes = {"file"} if self._own.weight_sync == "file" else {"file", "state_dict"}
        return EngineCapabilities(
            logprobs=True,
            prefix_cache=True,
            weight_sync=frozenset(routes),
            abort=True,
            seed=all(one.seed for one in asked) if asked else self._own.deterministic,
            truncation=all(one.truncation for one in asked),
            max_context=self._max_context,
        )

    async def open_servers(self, scratch: Path) -> Servers:
        """Start a server, or find those in ``urls``."""
        if self._own.weight_sync != "file" and find_spec("torch") is None:
            raise ConfigError(
                f"`engine.weight_sync: {self._own.weight_sync}` needs torch where the trainer runs.",
                "Install it, or set `engine.weight_sync: file`.",
            )
        self._memory = Memory(self._own.request_timeout_s) if self._own.colocate else None
        return await (self._connect() if self._own.urls else self._launch(scratch))

    async def close(self) -> None:
        """End the server that was started, and every call that waits; idempotent."""
        behind, self._behind = self._behind, set()
        for task in behind:
            task.cancel()
        await asyncio.gather(*behind, return_exceptions=True)
        await super().close()
        router, self._router = self._router, None
        if router is not None:
            await router.close()

    async def generate(
        self, prompt_ids: TokenArray, sampling: SamplingParams, *, session: str | None = None
    ) -> Generation:
        """Sample one action; see the contract. A cancelled call stops sampling."""
        await self._resume()
        return await super().generate(prompt_ids, sampling, session=session)

    async def update_weights(self, weights: WeightSource, version: int) -> None:
        """Give all servers new weights; see the contract. New calls wait meanwhile."""
        await self._resume()
        await super().update_weights(weights, version)

    async def rest(self) -> None:
        """Give the GPU's memory back until the next call, where that is set."""
        if self._memory is not None and self._managed is not None and not self._calls:
            (member,) = self._running().members
            if member.up:
                await self._memory.release(member.client, self._managed.restarts)

    async def _resume(self) -> None:
        if self._memory is not None and self._managed is not None:
            (member,) = self._running().members
            await self._memory.resume(member.client, self._managed.restarts)

    async def ask(
        self, client: ServerClient, call: Call, prompt: TokenArray, sampling: SamplingParams, max_tokens: int
    ) -> Generation:
        """Sample one action on one server."""
        server = self._abilities[client.url]
        self._check_request(server, prompt, sampling)
        if server.seed and sampling.seed is None:  # SGLang would give all of them one and the same
            sampling = replace(sampling, seed=secrets.randbits(63))
        body = wire.request_body(call.id, prompt, sampling, max_tokens)
        try:
            answer = await (self._router or client).post(wire.GENERATE, body)
        except ServerUnreachable as error:
            if self._router is None:
                raise
            raise ServerFault(f"The router: {error.problem}") from error  # which says nothing about the servers
        except asyncio.CancelledError:
            self._stop_behind(client, call)
            raise
        return wire.read_generation(answer, sampling, max_tokens)

    def _stop_behind(self, client: ServerClient, call: Call) -> None:
        """SGLang may sample on for a caller that is gone, so it is told."""

        async def stop() -> None:
            with contextlib.suppress(EngineError):
                await self.stop_call(client, call)

        if self._fleet is not None:
            task = asyncio.create_task(stop())
            self._behind.add(task)
            task.add_done_callback(self._behind.discard)

    async def stop_call(self, client: ServerClient, call: Call) -> None:
        """End an action early; its answer has what was sampled."""
        members = self._running().up if self._router is not None else []
        asked = [member.client for member in members] or [client]  # a router does not say who has it
        told = await asyncio.gather(*(one.post(wire.ABORT, {"rid": call.id}) for one in asked), return_exceptions=True)
        for answer in told:
            if isinstance(answer, BaseException):  # the others were told all the same
                raise answer

    def copy_tensors(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """Copies in this machine's memory."""
        return {name: tensor.detach().to("cpu", copy=True) for name, tensor in distinct(tensors).items()}

    async def push(self, client: ServerClient, weights: KeptWeights) -> None:
        """Load weights into one server."""
        settings, abilities = self._own, self._abilities[client.url]
        timeout_s = settings.request_timeout_s

        new = shapes_of_files(weights.folder) if weights.tensors is None else shapes_of_tensors(weights.tensors)
        check_shapes(self._shapes, new)
        self._shapes = self._shapes or new

        async def load() -> None:
            if weights.tensors is None:
                await sync.load_files(client, weights, timeout_s)
                return
            source, n_workers = distinct(weights.tensors), abilities.n_workers
            if settings.weight_sync == "tensors":
                await send_through_memory(client, source, weights.version, n_workers, timeout_s)
            else:
                await send_by_broadcast(
                    client, source, weights.version, n_workers, cpu=abilities.cpu, timeout_s=timeout_s
                )

        await sync.push(client, weights, load, settings.on_update, timeout_s)

    async def is_healthy(self, client: ServerClient) -> bool:
        """Whether it answers. Its own health route samples a token, which takes a second and fails in a pause."""
        try:
            await client.get("/model_info", timeout_s=HEALTH_S)
        except EngineError:
            return False
        return True

    def _check_request(self, server: checks.Abilities, prompt: TokenArray, sampling: SamplingParams) -> None:
        """SGLang would crash, or pass over what it does not know."""
        if self._vocabulary is not None and int(prompt.max()) >= self._vocabulary:
            raise EngineError(
                f"The prompt has token {int(prompt.max())}, but the model's vocabulary has {self._vocabulary} tokens.",
                "Render it with the tokenizer of this model.",
            )
        if sampling.seed is not None and not server.seed:
            raise EngineError(
                "The sglang engine takes no seeds with these settings.", "Set `engine.deterministic: true`, on a GPU."
            )
        if server.seed and sampling.min_p > 0:
            raise EngineError("A deterministic SGLang ends at min_p.", "Set it to 0, or `engine.deterministic: false`.")
        if wire.needs_support(sampling) and not server.truncation:
            raise EngineError(
                "This SGLang gives no log-probs of the distribution that top_k, top_p or min_p leaves.",
                "Set them to 0, 1 and 0, or update SGLang.",
            )
        if sampling.top_k > wire.SUPPORT:
            raise EngineError(
                f"top_k is {sampling.top_k}; SGLang gives log-probs for {wire.SUPPORT} at most.", "Lower it, or use 0."
            )

    async def _launch(self, scratch: Path) -> Servers:
        settings, model = self._own, str(self._own.model)
        found = await checks.look_at(settings.python)
        if runs_on_cpu(settings, found) and (settings.deterministic or settings.colocate):
            raise ConfigError(
                f"`engine.deterministic`, `engine.colocate`: '{settings.python}' has SGLang on CPU, which has neither.",
                "Remove them, or install SGLang for GPUs.",
            )
        checks.check_model(model, settings)
        launch = plan_launch(settings, model, found, scratch, log_file(settings.run_dir, self.name))
        return await start_server(self.name, launch, settings, self._is_ready, self._check)

    async def _connect(self) -> Servers:
        settings = self._own
        servers = await use_servers(settings, self._check)
        if settings.router is not None:
            token = os.environ.get(settings.token_env)
            self._router = ServerClient(settings.router, token=token, timeout_s=settings.request_timeout_s)
            try:
                passes_on = await checks.reports_support(self._router)
            except BaseException:
                for member in servers.members:
                    await member.client.close()
                raise
            if not passes_on:  # routers know the fields of requests by name, and leave out others
                self._abilities = {url: replace(one, truncation=False) for url, one in self._abilities.items()}
        return servers

    async def _is_ready(self, client: ServerClient) -> bool:
        try:
            await client.get("/health", timeout_s=HEALTH_S * 6)
        except EngineError:
            return False
        return True

    async def _check(self, client: ServerClient) -> int:
        self._abilities[client.url] = found = await checks.check_server(
            client, hands_tensors=self._own.weight_sync != "file"
        )
        if found.model is not None:
            self._vocabulary, self._shapes = checks.vocabulary_of(found.model), shapes_of_files(found.model)
        return found.max_context
