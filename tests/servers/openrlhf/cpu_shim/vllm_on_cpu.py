"""What lets OpenRLHF give weights to a vLLM of the CPU build, which samples without further ado."""

from __future__ import annotations

from typing import Any


def weights_to_cpu(module: Any) -> None:
    """After ``openrlhf.trainer.ray.vllm_worker_wrap``: weights are received on the worker's own device, not CUDA."""

    def update_weight(self: Any, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> None:
        import torch

        assert dtype == self.model_config.dtype, f"{name} came as {dtype}, and vLLM's is {self.model_config.dtype}"
        weight = torch.empty(shape, dtype=dtype, device=self.device)
        self._model_update_group.broadcast(weight, src=0)
        self.model_runner.model.load_weights(weights=[(name, weight)])

    module.WorkerWrap.update_weight = update_weight


def weights_stay(module: Any) -> None:
    """After ``vllm.model_executor.layers.utils``: the CPU build packs a layer's weight for its kernels and drops it,
    so that no later weight could be loaded."""
    import torch

    def keep_linear(layer: Any, remove_weight: bool) -> None:
        layer.cpu_linear = torch.nn.functional.linear

    module.dispatch_cpu_unquantized_gemm = keep_linear


PATCHES = {
    "openrlhf.trainer.ray.vllm_worker_wrap": weights_to_cpu,
    "vllm.model_executor.layers.utils": weights_stay,
}
