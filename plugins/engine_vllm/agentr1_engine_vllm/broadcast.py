"""Sending weights from the trainer's memory to the workers of one server, without files.

The engine has one ``Broadcaster`` for each server when ``weight_sync`` is ``broadcast``. NCCL carries them between
GPUs, gloo where either side has none. torch is imported at the first use; the trainer has it anyway.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentr1_core.errors import EngineError
from agentr1_core.serving import ServerClient, address_towards, free_port, is_loopback
from agentr1_engine_vllm import weight_group
from agentr1_engine_vllm.weight_group import Meeting, TensorPlan

#: Seconds for all members of a group to come, all of which run already.
JOIN_S = 60.0
#: Seconds for one side to say why it failed, after the other one has.
OTHER_SIDE_S = 5.0


class Broadcaster:
    """The trainer's end of a group with one server; made at the first use, and anew after a failure.

    Args:
        client: The server.
        folder: Where members on this machine find each other.
        timeout_s: Seconds for one update.
    """

    def __init__(self, client: ServerClient, folder: Path, timeout_s: float) -> None:
        self._client = client
        self._folder = folder
        self._timeout_s = timeout_s
        self._group: Any = None
        self._meeting = ""
        self._device: Any = None

    async def send(self, tensors: Mapping[str, Any]) -> None:
        """Load tensors into the server's workers.

        Raises:
            EngineError: The group could not be formed, or it broke, or they do not fit.
        """
        tensors = without_ties(tensors)
        workers = (await self._rpc("agentr1_ping"))["results"]
        if self._group is None or any(worker["meeting"] != self._meeting for worker in workers):
            self.forget()  # workers that were started again know nothing of it
            await self._meet(workers, next(iter(tensors.values())).device)
        plans = [TensorPlan.of(name, tensor) for name, tensor in tensors.items()]
        told = json.dumps([plan.as_list() for plan in plans])
        await self._both(
            self._rpc("agentr1_receive_weights", told),
            asyncio.to_thread(weight_group.send, self._group, plans, tensors, self._device),
        )

    def forget(self) -> None:
        """Leave the group; the next ``send`` forms another one. Idempotent."""
        group, self._group = self._group, None
        if group is not None:
            with contextlib.suppress(RuntimeError, AttributeError):
                group.abort()

    async def _meet(self, workers: Sequence[Mapping[str, Any]], sender: Any) -> None:
        cuda = sender.type == "cuda" and all(worker["device"] == "cuda" for worker in workers)
        self._device = sender if cuda else "cpu"
        self._meeting = secrets.token_hex(8)
        place: dict[str, Any] = {"file": str(self._folder / f"meeting-{self._meeting}")}
        if not is_loopback(self._client.url):
            place = {"host": address_towards(self._client.url), "port": free_port()}
        meeting = Meeting(
            self._meeting,
            "nccl" if cuda else "gloo",
            1 + len(workers),
            min(JOIN_S, self._timeout_s),
            self._timeout_s,
            **place,
        )
        _, self._group = await self._both(
            self._rpc("agentr1_join", json.dumps(meeting.as_dict())),
            asyncio.to_thread(weight_group.join, meeting, weight_group.TRAINER),
        )

    async def _both(self, asked: Any, own: Any) -> tuple[Any, Any]:
        """What the server's side and this one return. When one fails the group is given up, which ends the other."""
        tasks = [asyncio.ensure_future(asked), asyncio.ensure_future(own)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            if any(task.done() and task.exception() is not None for task in tasks):
                self.forget()
                await asyncio.wait(tasks, timeout=OTHER_SIDE_S)
                raise _as_engine_error(self._client.url, [t for t in tasks if t.done() and t.exception() is not None])
            return tasks[0].result(), tasks[1].result()
        except BaseException:
            self.forget()
            for task in tasks:
                task.cancel()
            raise

    async def _rpc(self, method: str, *args: str) -> Any:
        body = {"method": method, "args": list(args), "timeout": self._timeout_s}
        return await self._client.post("/collective_rpc", body, timeout_s=self._timeout_s)


def copy_to_host(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Copies that nobody else changes, in this machine's memory."""
    import torch

    return {
        name: torch.empty_like(tensor, device="cpu").copy_(tensor.detach())
        for name, tensor in without_ties(tensors).items()
    }


def without_ties(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The first of those that are one and the same in memory, such as tied embeddings, as in a saved model."""
    found: dict[Any, tuple[str, Any]] = {}
    for name, tensor in tensors.items():
        one = (tensor.data_ptr(), tuple(tensor.shape), tensor.dtype) if tensor.numel() else name
        found.setdefault(one, (name, tensor))
    return dict(found.values())


def _as_engine_error(url: str, failed: list[asyncio.Future[Any]]) -> BaseException:
    """The server's own error before torch's, which only sees that a connection is gone."""
    for task in failed:
        error = task.exception()
        if isinstance(error, EngineError) or not isinstance(error, Exception):
            return error  # type: ignore[return-value]  # of a failed task
    return EngineError(
        f"The broadcast of weights to {url} failed: {failed[0].exception()}",
        "See the server's log; `engine.weight_sync: file` sends them as files.",
    )
