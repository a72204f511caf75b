"""Supervised fine-tuning on demonstrations before RL, with TRL's ``SFTTrainer``.

The backend calls it once, when the run file asks for it. Demonstrations are rendered by the run's own renderer, so
that the model is tuned on exactly the tokens it will see in rollouts; only the completion is trained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from datasets import Dataset
from transformers import PrinterCallback
from trl import SFTTrainer

from agentr1_backend_trl.trl_settings import sft_config
from agentr1_core.backend import WarmStart
from agentr1_core.errors import DataError
from agentr1_core.mdp import ToolSpec
from agentr1_core.render import ChatRenderer
from agentr1_core.task import Task


def warm_start(model: Any, tokenizer: Any, renderer: ChatRenderer, job: WarmStart, folder: Path, seed: int) -> None:
    """Tune ``model`` in place.

    Raises:
        ConfigError: A setting is no field of ``SFTConfig``.
        DataError: There is no demonstration, or one lacks a prompt or a completion.
    """
    args = sft_config(job.settings, folder, seed)
    trainer = SFTTrainer(
        model=model,
        args=args,
        train_dataset=demonstrations(job.demonstrations, tokenizer, renderer),
        processing_class=tokenizer,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()


def demonstrations(rows: Sequence[Mapping[str, Any]], tokenizer: Any, renderer: ChatRenderer) -> Dataset:
    """Rows as ``input_ids`` and ``labels``, the prompt's labels being -100.

    Rows whose completion is more than the content of one assistant message are left to TRL and the chat template.

    Raises:
        DataError: There is none, or one lacks a prompt or a completion.
    """
    if not rows:
        raise DataError("The warm start has no demonstrations.", "Give at least one, or remove `warm_start`.")
    for position, row in enumerate(rows):
        if not row.get("prompt") or not row.get("completion"):
            raise DataError(
                f"Demonstration {position} has no 'prompt' or no 'completion'.",
                "Each needs both, as lists of messages.",
            )
    if not all(_is_plain(row["completion"]) for row in rows):
        return Dataset.from_list([dict(row) for row in rows])
    (stop, *_) = renderer.stop_token_ids
    found = []
    for position, row in enumerate(rows):
        prompt = Task(row, where=f"demonstration {position}").prompt
        head = renderer.render(prompt, _specs(row.get("tools"))).tolist()
        said = row["completion"] if isinstance(row["completion"], str) else row["completion"][0]["content"]
        tail = [*tokenizer(said, add_special_tokens=False)["input_ids"], stop]
        found.append({"input_ids": head + tail, "labels": [-100] * len(head) + tail})
    return Dataset.from_list(found)


def _is_plain(completion: Any) -> bool:
    if isinstance(completion, str):
        return True
    return len(completion) == 1 and not completion[0].get("tool_calls") and isinstance(completion[0]["content"], str)


def _specs(tools: Sequence[Mapping[str, Any]] | None) -> tuple[ToolSpec, ...]:
    """Tools as the model sees them, also from OpenAI's ``{"type": "function", "function": ...}``."""
    return tuple(dict(tool.get("function", tool)) for tool in tools or ())
