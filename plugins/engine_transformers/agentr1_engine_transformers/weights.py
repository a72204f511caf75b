"""Loading a model and putting new weights into it.

The worker thread calls these between steps. Nothing is copied before names and shapes were checked, so a refused
update leaves the model as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentr1_core.engine import WeightSource
from agentr1_core.errors import EngineError
from agentr1_engine_transformers.settings import EngineSettings

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "spiece.model",
    "vocab.json",
    "vocab.txt",
)


def load_model(settings: EngineSettings) -> tuple[nn.Module, frozenset[int]]:
    """Load the model that the settings name, and the end-of-sequence ids of its tokenizer if it has one.

    Raises:
        EngineError: It cannot be found, read or placed.
    """
    if settings.model is None:
        raise EngineError("The transformers engine has no model.", "Set `model` to a folder or hub id.")
    device = settings.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        model = AutoModelForCausalLM.from_pretrained(
            settings.model, dtype=settings.dtype, trust_remote_code=settings.trust_remote_code
        ).to(device)
    except (OSError, ValueError, RuntimeError, ImportError, KeyError, AttributeError, SafetensorError) as error:
        raise EngineError(
            f"The transformers engine could not load model {settings.model!r} on {device!r}: {error}",
            "Check `model` (a folder with config.json and safetensors, or a hub id) and `engine.device`.",
        ) from error
    model.eval()
    return model, _tokenizer_eos(settings)


def model_eos(model: Any) -> frozenset[int]:
    """End-of-sequence ids from the model's generation config and its config."""
    ids: set[int] = set()
    for config in (getattr(model, "generation_config", None), getattr(model, "config", None)):
        eos = getattr(config, "eos_token_id", None)
        ids.update([eos] if isinstance(eos, int) else eos or ())
    return frozenset(ids)


def update(model: nn.Module, weights: WeightSource) -> None:
    """Copy weights from a ``state_dict`` or ``file`` source into a model.

    Tied parameters may be given under any of their names. Adapters and partial sets are refused.

    Raises:
        EngineError: The source is empty or unreadable, or its names or shapes do not fit the model.
    """
    if weights.kind == "state_dict":
        if weights.tensors is None:
            raise EngineError("A `state_dict` weight source has no tensors.", "Set `WeightSource.tensors`.")
        tensors = weights.tensors
    elif weights.kind == "file":
        if weights.path is None:
            raise EngineError("A `file` weight source has no path.", "Set `WeightSource.path`.")
        tensors = _read(weights.path)
        if not set(tensors) <= set(model.state_dict()):
            # Some architectures are laid out otherwise on disk than in memory (experts, for instance).
            tensors = _read_converted(model, weights.path)
    else:
        raise EngineError(
            f"The transformers engine cannot take weights of kind {weights.kind!r} into a model of its own.",
            "Use `state_dict` or `file`, or share the trainer's model and use `live`.",
        )
    _copy(model, tensors)


def _tokenizer_eos(settings: EngineSettings) -> frozenset[int]:
    folder = Path(settings.model or "")
    if folder.is_dir() and not any((folder / file).exists() for file in _TOKENIZER_FILES):
        # Asked anyway, transformers makes up an empty tokenizer whose end-of-sequence id is 0.
        return frozenset()
    try:
        tokenizer = AutoTokenizer.from_pretrained(settings.model, trust_remote_code=settings.trust_remote_code)
    except (OSError, ValueError, ImportError, KeyError, TypeError, AttributeError):
        # A model without a tokenizer is fine: the caller names its stop ids.
        return frozenset()
    return frozenset() if tokenizer.eos_token_id is None else frozenset({tokenizer.eos_token_id})


def _read(folder: Path) -> dict[str, Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise EngineError(f"No safetensors files in {folder}.", "Save the model with `save_pretrained`.")
    tensors: dict[str, Tensor] = {}
    for file in files:
        try:
            tensors.update(load_file(file))
        except (OSError, SafetensorError) as error:
            raise EngineError(f"Could not read the weights in {file}: {error}") from error
    return tensors


def _read_converted(model: Any, folder: Path) -> Mapping[str, Tensor]:
    """Read weights through a second model of the same class, which knows the layout on disk."""
    try:
        other, info = type(model).from_pretrained(
            folder, config=model.config, dtype=model.dtype, output_loading_info=True
        )
    except (OSError, ValueError, RuntimeError, KeyError, AttributeError, SafetensorError) as error:
        raise EngineError(f"Could not read the weights in {folder}: {error}") from error
    for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if info.get(problem):
            raise EngineError(
                f"The weights in {folder} do not fit the model; {problem.replace('_', ' ')}: "
                f"{', '.join(map(str, list(info[problem])[:3]))}.",
                "Save the whole model of the same architecture; merge adapters first.",
            )
    state: Mapping[str, Tensor] = other.state_dict()
    return state


def _copy(model: nn.Module, tensors: Mapping[str, Any]) -> None:
    own = {**dict(model.named_parameters(remove_duplicate=False)), **dict(model.named_buffers(remove_duplicate=False))}
    persistent = model.state_dict()
    own = {name: own[name] for name in persistent if name in own}
    unknown = [name for name in tensors if name not in own]
    misshapen = [name for name in tensors if name in own and tensors[name].shape != own[name].shape]
    given: dict[int, str] = {}
    clashing = []
    for name in tensors:
        if name in own:
            first = given.setdefault(id(own[name]), name)
            if first != name and tensors[first] is not tensors[name] and not torch.equal(tensors[first], tensors[name]):
                clashing.append(name)
    missing = [name for name, tensor in own.items() if id(tensor) not in given]
    for problem, names in (
        ("names that the model does not have", unknown),
        ("other shapes than the model", misshapen),
        ("different values for tied parameters", clashing),
        ("no values for some parameters", missing),
    ):
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise EngineError(
                f"New weights have {problem}: {', '.join(names[:3])}{more}.",
                "Send the whole state dict of the same architecture; merge adapters first.",
            )
    # Not in inference mode: the parameters must stay ordinary tensors.
    with torch.inference_mode(False), torch.no_grad():
        for name in given.values():
            own[name].copy_(tensors[name])
