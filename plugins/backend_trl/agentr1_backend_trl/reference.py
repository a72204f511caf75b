"""Log-probs under the reference model, for the KL term.

The trainer asks before each batch's first update. With an adapter the reference is the model without it, or with the
copy of it that TRL took at the start; otherwise it is TRL's own reference model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from trl.trainer.utils import use_adapter


def reference_logps(
    trainer: Any, score: Callable[..., Any], ids: torch.Tensor, attended: torch.Tensor, n_kept: int
) -> torch.Tensor:
    """Log-probs of the last ``n_kept`` tokens, ``(B, n_kept)``.

    Args:
        trainer: The TRL trainer.
        score: Its ``_get_per_token_logps_and_entropies``.
        ids: Prompt and completion, ``(B, P + C)``.
        attended: Attention mask of the same shape.
        n_kept: C.
    """
    if trainer.ref_model is not None:
        found: torch.Tensor = score(trainer.ref_model, ids, attended, n_kept)[0]
        return found
    model = trainer.accelerator.unwrap_model(trainer.model)
    with use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None):
        found = score(trainer.model, ids, attended, n_kept)[0]
    return found
