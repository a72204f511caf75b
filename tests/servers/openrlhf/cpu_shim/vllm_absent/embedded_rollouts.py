"""OpenRLHF's rollout actors with the embedded engine in vLLM's place, for machines without vLLM.

OpenRLHF's own trainer calls them just as it calls its own: they load the agent executor, answer in vLLM's shapes and
get the policy's weights tensor by tensor, through a TCP store where NCCL would need GPUs.
"""

from __future__ import annotations

import asyncio
from typing import Any

from store_group import StoreGroup
from vllm_shaped import VllmShaped


class RolloutActor(VllmShaped):
    """What OpenRLHF calls of its ``RolloutRayActor``."""

    def __init__(self, pretrain: str, agent_func_path: str, load_executor: Any) -> None:
        from agentr1_engine_transformers.engine import TransformersEngine

        super().__init__(TransformersEngine(TransformersEngine.Settings(model=pretrain)))
        self._executor = load_executor(agent_func_path)
        self._weights: dict[str, Any] = {}
        self._version = 0

    async def generate_responses(self, *, num_samples: int = 1, **told: Any) -> list[Any]:
        await self.engine.start()
        return await asyncio.gather(*(self._executor.execute(**told, llm_engine=self) for _ in range(num_samples)))

    async def get_num_unfinished_requests(self) -> int:
        return 0

    async def init_process_group(self, host: str, port: int, rank: int, world: int, *_: Any, **__: Any) -> None:
        self._group = await asyncio.to_thread(StoreGroup, host, port, rank, world)

    async def update_weight(self, name: str, dtype: Any, shape: Any, empty_cache: bool = False) -> None:
        import torch

        from agentr1_core.engine import WeightSource

        tensor = torch.empty(shape, dtype=dtype)
        await asyncio.to_thread(self._group.broadcast, tensor)
        self._weights[name] = tensor
        if empty_cache:  # the last one
            self._version += 1
            await self.engine.start()
            await self.engine.update_weights(WeightSource("state_dict", tensors=self._weights), self._version)
            self._weights = {}

    async def reset_prefix_cache(self) -> None:
        """The engine drops its prefixes with its weights."""


def put_in_place(module: Any) -> None:
    """After ``openrlhf.trainer.ray.vllm_engine`` is imported."""
    import ray

    def create(num_engines: int, tensor_parallel_size: int, pretrain: str, *_: Any, **named: Any) -> list[Any]:
        make = ray.remote(RolloutActor).options(num_cpus=0, num_gpus=0)
        return [
            make.remote(pretrain, named["agent_func_path"], module._load_agent_executor) for _ in range(num_engines)
        ]

    module.create_vllm_engines = create


PATCHES = {"openrlhf.trainer.ray.vllm_engine": put_in_place}
