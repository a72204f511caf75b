"""What OpenRLHF and DeepSpeed take for granted on a GPU machine, and what stands in for it on a CPU.

None of this is part of agentr1: the product never imports it, and on a GPU machine nothing of it is needed.
"""

from __future__ import annotations

from typing import Any


class _Cpu(str):
    """A device name for tensors that also fits where OpenRLHF writes ``f"cuda:{device}"``."""

    def __format__(self, spec: str) -> str:
        return "0"


def no_cuda(cuda: Any) -> None:
    """``torch.cuda`` without a GPU: one device named "cpu", nothing to wait for, nothing to free."""
    if cuda.is_available():
        return
    cuda.current_device = lambda: _Cpu("cpu")
    cuda.set_device = lambda *_: None
    cuda.synchronize = lambda *_, **__: None
    cuda.empty_cache = lambda: None
    cuda.current_stream = lambda *_, **__: None


def mesh_on_cpu(module: Any) -> None:
    """OpenRLHF asks for a mesh of CUDA devices."""
    make = module.init_device_mesh
    module.init_device_mesh = lambda device, *args, **kwargs: make(
        "cpu" if device == "cuda" else device, *args, **kwargs
    )


def no_shared_memory_kernel(ops: Any) -> None:
    """DeepSpeed would compile its own all-reduce for CPUs at the first use, which takes minutes."""
    ops.__compatible_ops__["deepspeed_shm_comm"] = False


def adam_of_torch(module: Any) -> None:
    """DeepSpeed would compile its fused Adam for CPUs at the first use, which takes minutes."""
    make = module.get_train_ds_config

    def with_torch_adam(*args: Any, **kwargs: Any) -> Any:
        config = make(*args, **kwargs)
        if "optimizer" in config:
            config["optimizer"]["params"]["torch_adam"] = True
        return config

    module.get_train_ds_config = with_torch_adam


PATCHES = {
    "torch.cuda": no_cuda,
    "torch.distributed.device_mesh": mesh_on_cpu,
    "deepspeed.ops": no_shared_memory_kernel,
    "openrlhf.utils.deepspeed.deepspeed_utils": adam_of_torch,
}
