"""The teacher of on-policy distillation: a frozen model that scores the tokens the policy sampled.

``StepGRPOTrainer`` makes one when its estimator needs a teacher. It reads exactly the policy's tokens, so both must
have the same vocabulary; nothing is ever decoded and tokenised anew.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from agentr1_core.errors import ConfigError


class Teacher:
    """Log-probs under a frozen model.

    Args:
        model: The model itself, a folder or a hub id.
        vocabulary: Rows of the policy's embedding.
        temperature: Of the policy's sampling. The teacher is read at the same one, so that a teacher equal to the
            policy judges nothing.
        accelerator: Of the trainer.

    Raises:
        ConfigError: The model cannot be loaded, or has another vocabulary.
    """

    def __init__(self, model: Any, vocabulary: int, temperature: float, accelerator: Any) -> None:
        if not isinstance(model, PreTrainedModel):
            try:
                model = AutoModelForCausalLM.from_pretrained(model, dtype="auto")
            except (OSError, ValueError) as error:
                raise ConfigError(
                    f"teacher: '{model}' cannot be loaded: {error}", "Name a folder or a hub id of a causal model."
                ) from error
        size = model.get_input_embeddings().num_embeddings
        if size != vocabulary:
            raise ConfigError(
                f"teacher: it has {size} token embeddings, the policy {vocabulary}; token ids would not mean the same.",
                "Use a teacher of the same model family.",
            )
        self._model = model.to(accelerator.device).eval().requires_grad_(False)
        self._temperature = temperature
        self._accelerator = accelerator

    @torch.no_grad()
    def logps(self, ids: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Log-prob of each token given those before it, ``(B, L)`` float32; 0 at the first position."""
        with self._accelerator.autocast():
            logits = self._model(input_ids=ids, attention_mask=attended, use_cache=False).logits
        # One sequence at a time, since float32 log-probs of a whole vocabulary are large.
        rows = [
            torch.log_softmax(row[:-1].float() / self._temperature, -1).gather(1, following[1:, None])[:, 0]
            for row, following in zip(logits, ids, strict=True)
        ]
        return torch.nn.functional.pad(torch.stack(rows), (1, 0))
