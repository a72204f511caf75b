"""Loads new weights inside vLLM's workers. vLLM mixes the class into its worker (``--worker-extension-cls``).

The engine calls the methods over ``/collective_rpc``, between ``/pause`` and ``/resume``. The prefix cache is not
reset here: the scheduler owns it, and the engine asks for that separately.
"""

from __future__ import annotations

import json
import os
from typing import Any

from vllm.lora.request import LoRARequest
from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from agentr1_engine_vllm.server.cpu_seeds import rewind_thrown_away_draws
from agentr1_engine_vllm.weight_group import Meeting, TensorPlan, join, receive

rewind_thrown_away_draws(GPUModelRunner)


class WeightExtension:
    """Methods that a vLLM worker gets."""

    def agentr1_load_weights(self: Any, folder: str) -> dict[str, Any]:
        """Read safetensors into the running model.

        Args:
            folder: In the Hugging Face layout; every worker must see it.

        Raises:
            Whatever vLLM raises when they do not fit.
        """
        self.reload_weights(weights_path=folder)
        model = self.model_runner.get_model()
        return {"tied_head_refreshed": refresh_tied_head(model), "pid": os.getpid()}

    def agentr1_lora(self: Any) -> dict[str, Any]:
        """The largest rank of a LoRA adapter, ``None`` where there can be none, and the numbers of those it holds."""
        config = self.vllm_config.lora_config
        if config is None:
            return {"max_rank": None, "adapters": []}
        return {"max_rank": config.max_lora_rank, "adapters": sorted(self.list_loras())}

    def agentr1_swap_adapter(self: Any, number: str, name: str, folder: str) -> dict[str, Any]:
        """Give an adapter that the worker holds other weights; requests in flight go on with them.

        Loading in place by vLLM's own route would read the folder again at every step from then on.

        Args:
            number: Of the adapter.
            name: Under which requests ask for it.
            folder: Of the new adapter, in PEFT's layout.

        Raises:
            Whatever vLLM raises when it does not fit; the adapter is the old one then.
        """
        self.add_lora(LoRARequest(lora_name=name, lora_int_id=int(number), lora_path=folder, load_inplace=True))
        return {"pid": os.getpid()}

    def agentr1_join(self: Any, meeting: str) -> dict[str, Any]:
        """Enter a group with the trainer, in place of an earlier one.

        Args:
            meeting: A ``Meeting`` as JSON.

        Raises:
            ValueError: There are more workers than the trainer knows of.
            RuntimeError: Not all members came in time.
        """
        where = Meeting(**json.loads(meeting))
        parallel = self.vllm_config.parallel_config
        rank = 1 + parallel.data_parallel_index * parallel.world_size + self.rank
        if rank >= where.size:  # vLLM answers for the first of its data-parallel engines alone
            raise ValueError("no broadcast to data-parallel engines: start them as servers of their own, or use files")
        _leave(self)
        self.agentr1_group = (where.id, join(where, rank))
        return {"rank": rank}

    def agentr1_receive_weights(self: Any, plans: str) -> dict[str, Any]:
        """Read weights that the trainer broadcasts into the running model.

        Args:
            plans: A list of ``TensorPlan`` as JSON, in the order in which they come.

        Raises:
            RuntimeError: The group broke.
            Whatever vLLM raises when they do not fit.
        """
        coming = [TensorPlan.parse(plan) for plan in json.loads(plans)]
        _, group = self.agentr1_group
        try:
            self.reload_weights(weights_iterator=receive(group, coming, self.device))
        except BaseException:
            _leave(self)  # what the trainer still sends would be taken for the next update
            raise
        model = self.model_runner.get_model()
        return {"tied_head_refreshed": refresh_tied_head(model), "pid": os.getpid()}

    def agentr1_ping(self: Any) -> dict[str, Any]:
        """Says that the extension is there, where its tensors live, and in which group with a trainer it is."""
        meeting, _ = getattr(self, "agentr1_group", None) or (None, None)
        return {"pid": os.getpid(), "device": self.device.type, "meeting": meeting}


def _leave(worker: Any) -> None:
    _, group = getattr(worker, "agentr1_group", None) or (None, None)
    worker.agentr1_group = None
    if group is not None:
        group.abort()


def refresh_tied_head(model: Any) -> bool:
    """Rebuild the copy of tied embeddings that vLLM's CPU build keeps in a layout of its own for the output layer.

    A reload passes over the output layer of such models, so that it would go on with the old weights.
    """
    head = getattr(model, "lm_head", None)
    if head is None or not hasattr(head, "cpu_linear"):
        return False
    head.quant_method.process_weights_after_loading(head)
    return True
