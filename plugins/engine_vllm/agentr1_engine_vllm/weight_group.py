"""A process group of a trainer and the workers of one server, over which weights are broadcast.

Both sides import this module: the worker extension receives, ``broadcast`` in the trainer's process sends. It imports
the standard library alone, and torch when it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from math import prod
from typing import Any

#: Bytes that go in one broadcast, unless one tensor alone is larger.
BUCKET_BYTES = 2**28
#: Rank of the trainer; workers come after it.
TRAINER = 0


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where and how the members of a group find each other."""

    #: Tells this group from others.
    id: str
    #: ``nccl`` or ``gloo``.
    backend: str
    #: Trainer and workers.
    size: int
    #: Seconds for all of them to come, and for one broadcast.
    join_s: float
    timeout_s: float
    #: A file that all of them see, for members on one machine: nobody listens to strangers then.
    file: str | None = None
    #: Else the trainer's address and port.
    host: str = "127.0.0.1"
    port: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """Name, type and shape of a tensor that is to come."""

    name: str
    #: As torch names it, such as ``bfloat16``.
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int

    @classmethod
    def of(cls, name: str, tensor: Any) -> TensorPlan:
        """The plan for a tensor."""
        size = tensor.numel() * tensor.element_size()
        return cls(name, str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), size)

    @classmethod
    def parse(cls, said: Sequence[Any]) -> TensorPlan:
        """From what ``as_list`` made."""
        name, dtype, shape, n_bytes = said
        return cls(str(name), str(dtype), tuple(shape), int(n_bytes))

    def as_list(self) -> list[Any]:
        """Plain values, for JSON."""
        return [self.name, self.dtype, list(self.shape), self.n_bytes]


def in_buckets(plans: Iterable[TensorPlan], n_bytes: int = BUCKET_BYTES) -> Iterator[list[TensorPlan]]:
    """Tensors of one type that follow each other, together as far as ``n_bytes`` go. Both sides must cut alike."""
    bucket: list[TensorPlan] = []
    for plan in plans:
        full = bucket and sum(one.n_bytes for one in bucket) + plan.n_bytes > n_bytes
        if full or (bucket and bucket[0].dtype != plan.dtype):
            yield bucket
            bucket = []
        bucket.append(plan)
    if bucket:
        yield bucket


def join(meeting: Meeting, rank: int) -> Any:
    """Enter the group; returns when all members have.

    It stands beside the default group of its process, which may be one of vLLM or of the trainer.

    Args:
        meeting: Where.
        rank: ``TRAINER``, or the worker's.

    Raises:
        RuntimeError: Not all members came in time; torch raises it.
    """
    from torch import distributed

    wait, longest = timedelta(seconds=meeting.join_s), timedelta(seconds=meeting.timeout_s)
    if meeting.file is not None:
        store: Any = distributed.FileStore(meeting.file, meeting.size)
    else:
        store = distributed.TCPStore(
            meeting.host, meeting.port, meeting.size, is_master=rank == TRAINER, timeout=wait, wait_for_workers=False
        )
    store.set_timeout(wait)
    if meeting.backend == "nccl":
        nccl_options = distributed.ProcessGroupNCCL.Options()
        nccl_options._timeout = longest
        return distributed.ProcessGroupNCCL(store, rank, meeting.size, nccl_options)
    options = distributed.ProcessGroupGloo._Options()
    options._timeout = wait
    own = "127.0.0.1" if meeting.file is not None else ""
    options._devices = [distributed.ProcessGroupGloo.create_device(hostname=own)]
    group = distributed.ProcessGroupGloo(store, rank, meeting.size, options)
    group._set_default_timeout(longest)
    return group


def send(group: Any, plans: Sequence[TensorPlan], tensors: Any, device: Any) -> None:
    """Broadcast tensors from the trainer.

    Args:
        group: Of ``join``.
        plans: In the order in which they go.
        tensors: By name.
        device: Where the group's tensors live.
    """
    import torch

    for bucket in in_buckets(plans):
        parts = [tensors[plan.name].detach().to(device).contiguous().flatten() for plan in bucket]
        _broadcast(group, parts[0] if len(parts) == 1 else torch.cat(parts))
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def receive(group: Any, plans: Sequence[TensorPlan], device: Any) -> Iterator[tuple[str, Any]]:
    """Names and tensors as the trainer sends them."""
    import torch

    for bucket in in_buckets(plans):
        sizes = [prod(plan.shape) for plan in bucket]
        flat = torch.empty(sum(sizes), dtype=getattr(torch, bucket[0].dtype), device=device)
        _broadcast(group, flat)
        for plan, part in zip(bucket, flat.split(sizes), strict=True):
            yield plan.name, part.view(plan.shape)


def _broadcast(group: Any, tensor: Any) -> None:
    from torch import distributed

    options = distributed.BroadcastOptions()
    options.rootRank, options.rootTensor = TRAINER, 0
    group.broadcast([tensor], options).wait()
