"""Weights as tensors: cut into chunks, and sent to a server on this machine through shared memory.

``sync`` calls it where ``engine.weight_sync`` is ``tensors``. Torch is imported at use; the trainer has it.
"""

from __future__ import annotations

import base64
import contextlib
import io
from collections.abc import AsyncIterator, Iterator, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

from agentr1_core.errors import EngineError
from agentr1_core.serving import RequestRefused, ServerClient
from agentr1_core.threads import call_in_thread
from agentr1_engine_sglang.sync import check_done

#: Bytes of a chunk, about: so much is in memory once more while it travels.
CHUNK_BYTES = 512 * 2**20

Chunk = list[tuple[str, Any]]


def distinct(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Without those that are another one under a second name, as tied embeddings are."""
    seen: set[tuple[Any, ...]] = set()
    kept = {}
    for name, tensor in tensors.items():
        place = (tensor.device, tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        if tensor.numel() and place in seen:
            continue
        seen.add(place)
        kept[name] = tensor
    return kept


def chunks(tensors: Mapping[str, Any]) -> Iterator[tuple[Chunk, bool]]:
    """Tensors in chunks of about ``CHUNK_BYTES``, each with whether it is the last.

    Raises:
        EngineError: There are none.
    """
    chunk: Chunk = []
    size = 0
    for name, tensor in tensors.items():
        if chunk and size + tensor.nbytes > CHUNK_BYTES:
            yield chunk, False
            chunk, size = [], 0
        chunk.append((name, tensor))
        size += tensor.nbytes
    if not chunk:
        raise EngineError("The new weights have no tensors.", "Give the model's `state_dict()`.")
    yield chunk, True


@contextlib.asynccontextmanager
async def update_session(client: ServerClient, timeout_s: float) -> AsyncIterator[None]:
    """Around the chunks of one update; older versions have no such session and need none.

    Raises:
        EngineError: It could not be opened or closed.
    """
    try:
        check_done(await client.post("/begin_weight_update", {}, timeout_s=timeout_s), client)
    except RequestRefused as error:
        if error.status != 404:
            raise
        yield
        return
    try:
        yield
    except BaseException:
        with contextlib.suppress(EngineError):
            await client.post("/end_weight_update", {}, timeout_s=timeout_s)
        raise
    check_done(await client.post("/end_weight_update", {}, timeout_s=timeout_s), client)


async def send_through_memory(
    client: ServerClient,
    tensors: Mapping[str, Any],
    version: int,
    n_workers: int,
    timeout_s: float,
) -> None:
    """Send tensors to a server of this machine; the last chunk labels them and drops cached prefixes.

    Args:
        client: The server.
        tensors: By name, on any device.
        version: Of these weights.
        n_workers: Processes of the server that share the model; each reads all and takes its part.
        timeout_s: Seconds for one chunk.

    Raises:
        EngineError: The server could not take them.
    """
    async with update_session(client, timeout_s):
        for chunk, last in chunks(tensors):
            shared = [(name, tensor.detach().to("cpu", copy=True)) for name, tensor in chunk]
            body = {
                "serialized_named_tensors": [await call_in_thread(_in_shared_memory, shared) for _ in range(n_workers)],
                "flush_cache": last,
                **({"weight_version": str(version)} if last else {}),
            }
            check_done(await client.post("/update_weights_from_tensor", body, timeout_s=timeout_s), client)


def _in_shared_memory(tensors: Chunk) -> str:
    """What another process needs to map these tensors, which must live until it has done so."""
    import torch
    from torch.multiprocessing import reductions

    class ByName(ForkingPickler):
        """Shares storages under names of files; torch's default, file descriptors, wants one family of processes."""

        def __init__(self, target: io.BytesIO) -> None:
            super().__init__(target)
            self.dispatch_table[torch.UntypedStorage] = share  # type: ignore[attr-defined]

    def share(storage: Any) -> Any:
        place = storage._share_filename_cpu_()
        storage._shared_incref()
        return reductions.rebuild_storage_filename, (type(storage), *place)

    target = io.BytesIO()
    ByName(target).dump(tensors)
    return base64.b64encode(target.getvalue()).decode()
