"""Loads new weights inside vLLM's workers. vLLM mixes the class into its worker (``--worker-extension-cls``).

The engine calls the methods over ``/collective_rpc``, between ``/pause`` and ``/resume``. The prefix cache is not
reset here: the scheduler owns it, and the engine asks for that separately.
"""

from __future__ import annotations

import os
from typing import Any

from vllm.v1.worker.gpu_model_runner import GPUModelRunner

from agentr1_engine_vllm.server.cpu_seeds import rewind_thrown_away_draws

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

    def agentr1_ping(self: Any) -> dict[str, Any]:
        """Says that the extension is there."""
        return {"pid": os.getpid()}


def refresh_tied_head(model: Any) -> bool:
    """Rebuild the copy of tied embeddings that vLLM's CPU build keeps in a layout of its own for the output layer.

    A reload passes over the output layer of such models, so that it would go on with the old weights.
    """
    head = getattr(model, "lm_head", None)
    if head is None or not hasattr(head, "cpu_linear"):
        return False
    head.quant_method.process_weights_after_loading(head)
    return True
