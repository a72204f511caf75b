"""``ServedEngine``: the engine contract on one or several servers, whatever they run.

Engine plugins subclass it and say how servers are opened, how one is asked for an action and told to stop, and how
one takes weights. This class has the rest: which server is asked, what happens when one goes away and comes back,
and that nothing is sampled while weights change hands.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import uuid
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from agentr1_core.engine import Generation, Health, InferenceEngine, SamplingParams, WeightSource
from agentr1_core.errors import ConfigError, EngineError
from agentr1_core.mdp import FinishReason, TokenArray, float_array, token_array
from agentr1_core.serving.client import ServerClient, ServerUnreachable
from agentr1_core.serving.fleet import Fleet, Member
from agentr1_core.serving.managed import ManagedServer, cause_of
from agentr1_core.serving.settings import ServerSettings
from agentr1_core.serving.spool import KeptWeights, WeightSpool

#: Seconds between two looks at a server that went away.
LOOK_S = 2.0
#: An abort that overtook its request is sent again so often, so many seconds apart.
ABORT_TRIES, ABORT_WAIT_S = 50, 0.1


@dataclass(slots=True, eq=False)
class Call:
    """One action in flight."""

    id: str
    session: str | None
    aborted: bool = False
    member: Member | None = None
    done: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Servers:
    """What ``open_servers`` found or started; all are ready."""

    members: list[Member]
    #: The process behind the only member, where the engine started it.
    managed: ManagedServer | None
    #: Longest prompt plus action, in tokens.
    max_context: int


class ServedEngine(InferenceEngine):
    """An engine that runs as a server.

    Args:
        settings: Of the plugin.
    """

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings
        self._max_context: int | None = None
        self._fleet: Fleet | None = None
        self._managed: ManagedServer | None = None
        self._spool: WeightSpool | None = None
        self._looking: set[asyncio.Task[None]] = set()
        self._calls: set[Call] = set()
        self._gate = asyncio.Event()
        self._updating = asyncio.Lock()
        self._version = 0
        self._numbers = itertools.count()

    # ------------------------------------------------------------------ what a plugin says

    @abstractmethod
    async def open_servers(self, scratch: Path) -> Servers:
        """Start a server or find running ones, and check what they can do; on failure close what was opened.

        Args:
            scratch: A folder for files that a server needs; removed when the engine closes.
        """

    @abstractmethod
    async def ask(
        self, client: ServerClient, call: Call, prompt: TokenArray, sampling: SamplingParams, max_tokens: int
    ) -> Generation:
        """Sample one action on one server; ``max_tokens`` fits into the context."""

    @abstractmethod
    async def stop_call(self, client: ServerClient, call: Call) -> None:
        """Tell a server to end an action early; one it does not know is no error."""

    @abstractmethod
    async def push(self, client: ServerClient, weights: KeptWeights) -> None:
        """Load weights into one server and drop its cached prefixes; ``generate`` is not called meanwhile.

        Args:
            client: The server.
            weights: What it lacks: whole weights, an adapter on top of those it has, or both.
        """

    def copy_tensors(self, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
        """Copies of tensors that the trainer will change, for servers that come back; for engines that take a
        ``state_dict``."""
        raise NotImplementedError(f"The {self.name} engine takes a state_dict and does not say how one is copied.")

    @abstractmethod
    async def is_healthy(self, client: ServerClient) -> bool:
        """Whether a server answers; never raises ``EngineError``."""

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Open the servers.

        Raises:
            EngineError: With what is missing, in one line.
        """
        if self._fleet is not None:
            return
        self._gate, self._updating = asyncio.Event(), asyncio.Lock()  # those of this event loop
        self._spool = WeightSpool(self._settings.weights_dir)
        try:
            servers = await self.open_servers(self._spool.folder)
        except BaseException:
            await self.close()
            raise
        self._fleet = fleet = Fleet(servers.members)
        self._managed, self._max_context = servers.managed, servers.max_context
        for member in fleet.members:
            fleet.mark_up(member)
        if self._managed is not None:
            (member,) = fleet.members
            self._managed.watch(
                lambda cause: fleet.mark_down(member, cause), lambda: self._take_back(fleet, member), fleet.give_up
            )
        self._gate.set()

    async def close(self) -> None:
        """End the server that was started, and every call that waits; idempotent."""
        fleet, self._fleet = self._fleet, None
        managed, self._managed = self._managed, None
        spool, self._spool = self._spool, None
        looking, self._looking = self._looking, set()
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
        if fleet is not None:
            fleet.give_up(EngineError(f"The {self.name} engine was closed."))
            for member in fleet.members:
                fleet.mark_down(member, "the engine was closed")
                await member.client.close()
        self._gate.set()  # whoever waits finds the engine closed
        if managed is not None:
            await managed.stop()
        if spool is not None:
            spool.close()

    async def health(self) -> Health:
        """Whether a server answers now, and what runs."""
        fleet = self._fleet
        if fleet is None:
            return Health(ready=False, detail="not started")
        answers = await asyncio.gather(*(self.is_healthy(member.client) for member in fleet.up))
        causes = [f"{member.client.url}: {member.cause}" for member in fleet.members if not member.up]
        detail = f"{sum(answers)} of {len(fleet.members)} servers answer"
        return Health(any(answers), self._version, len(self._calls), "; ".join([detail, *causes]))

    # ------------------------------------------------------------------ actions

    async def generate(
        self, prompt_ids: TokenArray, sampling: SamplingParams, *, session: str | None = None
    ) -> Generation:
        """Sample one action; see the contract. A cancelled call stops sampling."""
        fleet = self._running()
        prompt = token_array(prompt_ids)
        room = self._room(prompt, sampling)
        call = Call(f"agentr1-{uuid.uuid4().hex[:8]}-{next(self._numbers)}", session)
        self._calls.add(call)
        try:
            return await self._answer(fleet, call, prompt, sampling, room)
        finally:
            call.done.set()
            self._calls.discard(call)

    async def _answer(
        self, fleet: Fleet, call: Call, prompt: TokenArray, sampling: SamplingParams, max_tokens: int
    ) -> Generation:
        for _ in fleet.members:
            await self._gate.wait()
            await fleet.wait_up(self._settings.startup_timeout_s)
            if call.aborted:
                return Generation(token_array([]), float_array([]), FinishReason.ABORT, ())
            call.member = member = fleet.choose(call.session)
            member.running += 1
            try:
                return await self.ask(member.client, call, prompt, sampling, max_tokens)
            except ServerUnreachable as error:
                self._lost(fleet, member, error.problem)
                if not fleet.up:
                    raise
                # Nothing of the action was seen yet, so another server may sample it.
            finally:
                member.running -= 1
        raise EngineError(f"No {self.name} server answered; each was tried.")

    async def abort(self, session: str) -> None:
        """Stop every call of this session; each returns what it has."""
        calls = [call for call in self._calls if call.session == session]
        for call in calls:
            call.aborted = True
        for _ in range(ABORT_TRIES):
            calls = [call for call in calls if not call.done.is_set()]
            if not calls:
                return
            for call in calls:
                if call.member is not None:
                    with contextlib.suppress(EngineError):  # its server is gone, and the call ends with it
                        await self.stop_call(call.member.client, call)
            # An abort that comes before its request finds nothing to stop, so it is sent again.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ABORT_WAIT_S):
                    await asyncio.gather(*(call.done.wait() for call in calls))

    def _room(self, prompt: TokenArray, sampling: SamplingParams) -> int:
        """Longest action that fits; servers clip silently or refuse."""
        if len(prompt) == 0:
            raise EngineError("The prompt is empty.", "Give at least one token.")
        if int(np.min(prompt)) < 0:
            raise EngineError("The prompt has negative token ids.", "Render it with the tokenizer of this model.")
        if self._max_context is None:
            return sampling.max_tokens
        room = self._max_context - len(prompt)
        if room < 1:
            raise EngineError(
                f"The prompt has {len(prompt)} tokens, which leaves no room in a context of {self._max_context}.",
                "Shorten the context (a context policy can), or raise the engine's limit if the model allows it.",
            )
        return min(sampling.max_tokens, room)

    # ------------------------------------------------------------------ weights

    async def update_weights(self, weights: WeightSource, version: int) -> None:
        """Give all servers new weights; see the contract. New calls wait meanwhile.

        A server that cannot be reached is left out and gets them when it comes back.

        Raises:
            EngineError: They cannot be read, or a server could not load them.
        """
        fleet, spool = self._running(), self._spool
        takes = self.capabilities.weight_sync
        if weights.kind not in takes or spool is None:
            raise EngineError(
                f"The {self.name} engine cannot take weights by '{weights.kind}', only by {', '.join(sorted(takes))}.",
                "Save the model with `save_pretrained` and give its folder, as a `file` source.",
            )
        async with self._updating:
            change = await self._keep(spool, weights, version)
            self._version = version
            self._gate.clear()
            try:
                done = await asyncio.gather(
                    *(self._push_or_lose(fleet, member, change) for member in fleet.up), return_exceptions=True
                )
            finally:
                self._gate.set()
                spool.drop_old()
        for failure in done:
            if failure is not None:
                raise failure
        if not fleet.up:
            await fleet.wait_up(self._settings.startup_timeout_s)

    async def _keep(self, spool: WeightSpool, weights: WeightSource, version: int) -> KeptWeights:
        """Keep new weights for servers that come back; what those that are up must be given now."""
        if weights.kind == "lora":
            return await asyncio.to_thread(spool.keep_adapter, weights.path, version)
        if weights.kind == "state_dict":
            if not weights.tensors:
                raise EngineError("A `state_dict` weight source has no tensors.", "Set `WeightSource.tensors`.")
            spool.keep_tensors(await asyncio.to_thread(self.copy_tensors, weights.tensors), version)
            return KeptWeights(version, tensors=weights.tensors)
        return await asyncio.to_thread(spool.keep, weights.path, version)

    async def _push_or_lose(self, fleet: Fleet, member: Member, weights: KeptWeights) -> None:
        try:
            await self.push(member.client, weights)
        except ServerUnreachable as error:
            self._lost(fleet, member, error.problem)
        except BaseException as error:  # cancelled too: it may have any weights now
            self._lost(fleet, member, cause_of(error))
            raise

    # ------------------------------------------------------------------ servers that go and come back

    def _lost(self, fleet: Fleet, member: Member, cause: str) -> None:
        """Leave out a server that does not answer or has old weights, and look out for it."""
        if not member.up or self._fleet is not fleet:
            return
        fleet.mark_down(member, cause)
        task = asyncio.create_task(self._look_for(fleet, member))
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look_for(self, fleet: Fleet, member: Member) -> None:
        restarts = self._managed.restarts if self._managed is not None else 0
        while not member.up:
            await asyncio.sleep(LOOK_S)
            if self._managed is not None and (not self._managed.runs or self._managed.restarts > restarts):
                return  # its watcher starts another one and takes that back
            if await self.is_healthy(member.client):
                try:
                    await self._take_back(fleet, member)
                except Exception as error:  # whatever it was: the next look tries again
                    fleet.mark_down(member, cause_of(error))

    async def _take_back(self, fleet: Fleet, member: Member) -> None:
        """Give a server that is there again the current weights, then use it."""
        async with self._updating:
            if member.up:
                return
            if self._spool is not None and self._spool.current is not None:
                await self.push(member.client, self._spool.current)
            fleet.mark_up(member)

    def _running(self) -> Fleet:
        if self._fleet is None:
            raise EngineError(f"The {self.name} engine is not running.", "Call `start` first, and not after `close`.")
        return self._fleet


def own_share(urls: tuple[str, ...]) -> tuple[str, ...]:
    """The servers of this training process: two processes must not change the weights of one server at once.

    Raises:
        ConfigError: There are fewer servers than processes.
    """
    n, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    if len(urls) < n:
        raise ConfigError(
            f"`engine.urls` names {len(urls)} servers for {n} training processes.",
            "Name at least one for each, or leave `urls` out: each process then starts its own.",
        )
    return urls[rank::n]
