"""How an engine with weights of its own gets the trainer's after each update.

The trainer calls ``push_weights`` before it collects. Adapters go by themselves to engines that take them; for others
they are merged for the copy and taken apart again. The trainer's own weights are never changed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, is_peft_model

from agentr1_core.engine import WeightSource

Take = Callable[[WeightSource, int], None]


def push_weights(
    route: str, trainer: Any, version: int, take: Take, tokenizer: Any, *, adapter: bool = False, anew: bool = False
) -> None:
    """Give an engine the weights of the trainer's model.

    Args:
        route: Of whole weights: ``live`` (the engine shares the model: only told), ``state_dict`` or ``file``.
        trainer: The TRL trainer.
        version: Optimiser steps these weights have had.
        take: Hands a source to this process's engine.
        tokenizer: Saved beside the weights of the ``file`` route.
        adapter: Send the adapter that is trained by itself; what it stands on is sent once, by ``route``.
        anew: Whether the engine has had nothing from this trainer since it started.
    """
    if route == "live":
        take(WeightSource("live"), version)
        return
    model = trainer.accelerator.unwrap_model(trainer.model)
    if not adapter or anew:
        _push_whole(route, trainer, model, version, take, tokenizer, merge=not adapter)
    if adapter:
        _push_adapter(trainer, model, version, take)


def _push_whole(route: str, trainer: Any, model: Any, version: int, take: Take, tokenizer: Any, *, merge: bool) -> None:
    if route == "state_dict":
        with _merged(trainer, model, merge):
            take(WeightSource("state_dict", tensors=_plain_state(model, model.state_dict())), version)
        return
    n_bytes = sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())
    with _shared_folder(trainer.accelerator, n_bytes) as folder:
        with _merged(trainer, model, merge):
            state = _plain_state(model, trainer.accelerator.get_state_dict(trainer.model_wrapped) or {})
            if trainer.accelerator.is_main_process:
                base = model.get_base_model() if is_peft_model(model) else model
                base.save_pretrained(folder, state_dict=state, safe_serialization=True)
                tokenizer.save_pretrained(folder)
        trainer.accelerator.wait_for_everyone()
        take(WeightSource("file", path=folder), version)
        trainer.accelerator.wait_for_everyone()


def _push_adapter(trainer: Any, model: Any, version: int, take: Take) -> None:
    n_bytes = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    with _shared_folder(trainer.accelerator, n_bytes) as folder:
        state = trainer.accelerator.get_state_dict(trainer.model_wrapped) or {}
        if trainer.accelerator.is_main_process:
            model.save_pretrained(folder, state_dict=state, selected_adapters=[model.active_adapter])
        trainer.accelerator.wait_for_everyone()
        name = str(model.active_adapter)  # PEFT gives every other name a folder of its own
        take(WeightSource("lora", path=folder if name == "default" else folder / name), version)
        trainer.accelerator.wait_for_everyone()


def why_no_adapter(model: Any) -> str | None:
    """Why the adapter of a PEFT model cannot be sent by itself; ``None`` where it can."""
    config = model.peft_config[model.active_adapter]
    kind = str(getattr(config.peft_type, "value", config.peft_type))
    for broken, what in (
        (kind != "LORA", f"an adapter of type {kind}"),
        (bool(getattr(config, "modules_to_save", None)), "`modules_to_save`"),
        (bool(getattr(config, "use_dora", False)), "`use_dora`"),
        (getattr(config, "bias", "none") != "none", "a bias that is trained"),
    ):
        if broken:
            return what
    return None


@contextlib.contextmanager
def _merged(trainer: Any, model: Any, merge: bool) -> Iterator[None]:
    """Adapters folded into the base weights while it lasts."""
    if not merge or not is_peft_model(model):
        yield
        return
    with trainer._dist.gather_params(list(model.parameters())):
        model.merge_adapter()
        try:
            yield
        finally:
            model.unmerge_adapter()


def _plain_state(model: Any, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Weights under the names of the model without adapters."""
    if not is_peft_model(model):
        return {name: tensor.detach() for name, tensor in state.items()}
    plain = {}
    for name, tensor in state.items():
        if model.prefix in name or "original_module" in name:
            continue
        name = name.removeprefix("base_model.model.").replace(".base_layer", "")
        plain[name.replace("modules_to_save.default.", "")] = tensor.detach()
    return plain


@contextlib.contextmanager
def _shared_folder(accelerator: Any, n_bytes: int) -> Iterator[Path]:
    """One folder for all processes, made and removed by the first; in memory where that has room for the weights."""
    memory = Path("/dev/shm")
    roomy = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2 * n_bytes
    root = memory if roomy else None
    named = [tempfile.mkdtemp(prefix="agentr1-weights-", dir=root) if accelerator.is_main_process else None]
    broadcast_object_list(named)
    try:
        yield Path(str(named[0]))
    finally:
        if accelerator.is_main_process:
            shutil.rmtree(str(named[0]), ignore_errors=True)
