"""Weights by broadcast: the trainer and the workers of one server form a process group, NCCL on GPUs and gloo on CPU.

``sync`` calls it where ``engine.weight_sync`` is ``broadcast``. Each server has a group of its own, so that one that
goes away holds up no other. Torch is imported at use; the trainer has it.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from agentr1_core.errors import EngineError
from agentr1_core.serving import ServerClient, address_towards, free_port
from agentr1_core.threads import call_in_thread
from agentr1_engine_sglang.sync import check_done
from agentr1_engine_sglang.tensors import Chunk, chunks, update_session


@dataclass(frozen=True, slots=True)
class _Group:
    name: str
    process_group: Any
    device: Any


async def send_by_broadcast(
    client: ServerClient,
    tensors: Mapping[str, Any],
    version: int,
    n_workers: int,
    *,
    cpu: bool,
    timeout_s: float,
) -> None:
    """Send tensors to a server; the last chunk labels them and drops cached prefixes.

    The group is formed for each update anew, so that a server that was started again is none the worse.

    Args:
        client: The server.
        tensors: By name, on any device.
        version: Of these weights.
        n_workers: Processes of the server that share the model.
        cpu: Whether the server computes on CPU.
        timeout_s: Seconds for the group to form and for one chunk to arrive.

    Raises:
        EngineError: The group could not be formed, or the server could not take them.
    """
    async with _group_with(client, n_workers, cpu, timeout_s) as group, update_session(client, timeout_s):
        for chunk, last in chunks(tensors):
            await _send_chunk(client, group, chunk, version if last else None, timeout_s)


@contextlib.asynccontextmanager
async def _group_with(client: ServerClient, n_workers: int, cpu: bool, timeout_s: float) -> AsyncIterator[_Group]:
    import torch

    if not cpu and not torch.cuda.is_available():
        raise EngineError(
            f"{client.url} computes on a GPU and the trainer on none, so that no broadcast can join them.",
            "Set `engine.weight_sync: file`.",
        )
    backend = "gloo" if cpu else "nccl"
    device = torch.device("cpu") if cpu else torch.device("cuda", torch.cuda.current_device())
    host, port, size = address_towards(client.url), free_port(), n_workers + 1
    name = f"agentr1-{uuid.uuid4().hex[:8]}"
    body = {
        "master_address": host,
        "master_port": port,
        "rank_offset": 1,
        "world_size": size,
        "group_name": name,
        "backend": backend,
    }
    joining = asyncio.create_task(call_in_thread(_join, f"tcp://{host}:{port}", size, name, backend, timeout_s))
    try:
        check_done(await client.post("/init_weights_update_group", body, timeout_s=timeout_s), client)
        process_group = await joining
    except RuntimeError as error:  # torch's own
        raise EngineError(
            f"{client.url} and the trainer could not form a group for weights: {error}",
            "See the server's log; `engine.weight_sync: file` sends them as files.",
        ) from error
    finally:
        joining.cancel()
    try:
        yield _Group(name, process_group, device)
    finally:
        with contextlib.suppress(EngineError):
            await client.post("/destroy_weights_update_group", {"group_name": name}, timeout_s=timeout_s)
        await call_in_thread(_leave, process_group)


async def _send_chunk(client: ServerClient, group: _Group, chunk: Chunk, version: int | None, timeout_s: float) -> None:
    body = {
        "names": [name for name, _ in chunk],
        "dtypes": [str(tensor.dtype).removeprefix("torch.") for _, tensor in chunk],
        "shapes": [list(tensor.shape) for _, tensor in chunk],
        "group_name": group.name,
        "flush_cache": version is not None,
        **({} if version is None else {"weight_version": str(version)}),
    }

    async def ask() -> None:
        answer = await client.post("/update_weights_from_distributed", body, timeout_s=timeout_s)
        check_done(answer, client)

    async def send() -> None:
        try:
            await call_in_thread(_broadcast, group, [tensor for _, tensor in chunk])
        except RuntimeError as error:  # torch's own
            raise EngineError(f"The broadcast of weights to {client.url} failed: {error}") from error

    tasks = [asyncio.create_task(ask()), asyncio.create_task(send())]
    try:
        # A server that refuses takes no part in the broadcast, for which nobody should wait then.
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _join(address: str, size: int, name: str, backend: str, timeout_s: float) -> Any:
    """Form a process group beside the default one, as its first member, in the way that SGLang's workers join it."""
    from torch.distributed import distributed_c10d as c10d

    timeout = timedelta(seconds=timeout_s)
    store, rank, size = next(c10d.rendezvous(address, 0, size, timeout=timeout))
    store.set_timeout(timeout)
    group, _ = c10d._new_process_group_helper(
        size,
        rank,
        [],
        c10d.Backend(backend),
        c10d.PrefixStore(name, store),
        group_name=name,
        timeout=timeout,
    )
    return group


def _broadcast(group: _Group, tensors: list[Any]) -> None:
    from torch.distributed import BroadcastOptions

    options = BroadcastOptions()
    options.rootRank = 0
    for tensor in tensors:
        whole = tensor.detach().to(group.device).contiguous()
        group.process_group.broadcast([whole], options).wait()


def _leave(group: Any) -> None:
    from torch.distributed import distributed_c10d as c10d

    with contextlib.suppress(Exception):  # one whose other side is gone cannot be taken apart in order
        group.shutdown()
    for known in (c10d._world.pg_map, c10d._world.pg_names, c10d._world.pg_backend_config):
        known.pop(group, None)
