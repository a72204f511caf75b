"""What is checked before a server is started or used; each failure is one clear line.

The engine calls the checks of the installation and the model before a start, and those of a running server after it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentr1_core.engine import SamplingParams
from agentr1_core.errors import EngineError
from agentr1_core.mdp import token_array
from agentr1_core.serving import UNKNOWN, RequestRefused, ServerClient, versions_in
from agentr1_engine_sglang import wire
from agentr1_engine_sglang.settings import SGLangSettings

#: Versions whose routes this engine knows: from, and up to but without. Before 0.5.19 answers do not say which weights
#: sampled which token.
OLDEST, TOO_NEW = (0, 5, 19), (0, 6, 0)
_SUPPORTED = ">=0.5.19,<0.6"


@dataclass(frozen=True, slots=True)
class Installation:
    """The SGLang that an interpreter has."""

    version: str
    #: Whether its torch is a build for CPUs.
    cpu: bool


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a running server can do."""

    #: Longest prompt plus action, in tokens.
    max_context: int
    #: Sampling follows seeds.
    seed: bool
    #: Log-probs are right under top-k, top-p and min-p too.
    truncation: bool
    #: Folder of the model it was started with; ``None`` where that cannot be read here.
    model: Path | None
    #: Processes that share the model.
    n_workers: int
    #: Whether it computes on CPU.
    cpu: bool


async def look_at(python: Path) -> Installation:
    """Find the SGLang of an interpreter.

    Raises:
        EngineError: It is no interpreter, has no SGLang, or one of a version this engine does not know.
    """
    found = await versions_in(python, ("sglang", "torch"), ".venvs/sglang/bin/python")
    version, torch = found["sglang"], found["torch"]
    if version is None:
        raise EngineError(
            f"`engine.python`: '{python}' has no SGLang.",
            "Make an environment for it (its pins clash with a trainer's) and name its interpreter in `engine.python`; "
            "or name servers that run already in `engine.urls`.",
        )
    if version != UNKNOWN:
        check_version(version, f"`engine.python`: '{python}'")
    return Installation(version, torch is not None and "cpu" in torch.partition("+")[2])


def check_version(version: str, where: str) -> None:
    """Refuse an SGLang whose routes are not known.

    Raises:
        EngineError: Naming the version and the range.
    """
    parts = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    known = parts is not None and OLDEST <= (int(parts[1]), int(parts[2]), int(parts[3])) < TOO_NEW
    if not known:
        raise EngineError(
            f"{where} has SGLang {version}; this engine knows {_SUPPORTED}.", f"Install sglang{_SUPPORTED}."
        )


def check_model(model: str, settings: SGLangSettings) -> None:
    """Refuse a model folder that the server could not run. Models of a hub are left to the server.

    Raises:
        EngineError: The folder has no configuration, or its context is shorter than ``context_length``.
    """
    folder = Path(model)
    if not folder.is_dir():
        return
    config = _read_config(folder / "config.json")
    if config is None:
        raise EngineError(f"`model`: '{model}' has no readable config.json.", "Name a folder in Hugging Face's layout.")
    longest = config.get("max_position_embeddings")
    if settings.context_length is not None and longest is not None and settings.context_length > longest:
        raise EngineError(
            f"`engine.context_length` is {settings.context_length}, but the context of '{model}' is {longest} tokens.",
            f"Set it to {longest} at most.",
        )


async def check_server(client: ServerClient, *, hands_tensors: bool = False) -> Abilities:
    """Find out what a running server can do.

    Args:
        client: The server.
        hands_tensors: Whether it will be given weights otherwise than as files.

    Raises:
        EngineError: It cannot do what every run needs, or does not answer.
    """
    info = await client.get("/server_info")
    if not isinstance(info, dict) or not {"version", "max_req_input_len"} <= info.keys():
        raise EngineError(f"{client.url} is no SGLang server: /server_info says {str(info)[:100]}")
    check_version(str(info["version"]), client.url)
    if hands_tensors and int(info.get("dp_size", 1)) > 1:
        raise EngineError(
            f"{client.url} has data-parallel replicas, which take weights as files only.",
            "Set `engine.weight_sync: file`.",
        )
    if info.get("speculative_algorithm") is not None:
        raise EngineError(
            f"{client.url} decodes speculatively, and its log-probs are not those of the distribution sampled from.",
            "Start it without --speculative-algorithm.",
        )
    if not (await client.get("/model_info")).get("is_generation"):
        raise EngineError(f"{client.url} serves a model that does not generate text.", "Serve a causal language model.")
    await _check_logprobs(client)
    return Abilities(
        # The longest prompt it takes, and one token more.
        max_context=int(info["max_req_input_len"]) + 1,
        seed=bool(info.get("enable_deterministic_inference")),
        truncation=await reports_support(client),
        model=folder_of(str(info.get("model_path", ""))),
        n_workers=int(info.get("tp_size", 1)) * int(info.get("pp_size", 1)),
        cpu=info.get("device") == "cpu",
    )


def folder_of(model: str) -> Path | None:
    """Where the files of a model lie on this machine: its folder, or its place in Hugging Face's cache."""
    if (Path(model) / "config.json").is_file():
        return Path(model)
    from huggingface_hub import try_to_load_from_cache

    try:
        found = try_to_load_from_cache(model, "config.json")
    except ValueError:  # no name of a hub
        return None
    return Path(found).parent if isinstance(found, str) else None


def vocabulary_of(folder: Path) -> int | None:
    """Tokens of a model, where its configuration says how many."""
    config = _read_config(folder / "config.json")
    size = None if config is None else config.get("vocab_size")
    return size if isinstance(size, int) else None


async def _check_logprobs(client: ServerClient) -> None:
    """Twice the temperature halves the distance between the log-probs of two tokens."""
    distances = []
    for temperature in (1.0, 2.0):
        body = wire.request_body("agentr1-check", token_array([1]), SamplingParams(1, temperature), 1)
        answer = await client.post(wire.GENERATE, {**body, "top_logprobs_num": 5})
        try:
            found = [entry[0] for entry in answer["meta_info"]["output_top_logprobs"][0]]
        except (KeyError, IndexError, TypeError) as error:
            raise EngineError(f"{client.url} gives no log-probs: {str(answer)[:200]}") from error
        distances.append(found[0] - found[-1])
    if not np.isclose(distances[0], 2 * distances[1], rtol=1e-2, atol=1e-4):
        raise EngineError(
            f"{client.url} gives log-probs of another distribution than the one it samples from.",
            "Start it without SGLANG_RETURN_ORIGINAL_LOGPROB in its environment.",
        )


async def reports_support(client: ServerClient) -> bool:
    """Whether a server, or one behind a router, scores tokens among those that top-k leaves, and does that right.

    Raises:
        EngineError: It does not answer.
    """
    sampling = SamplingParams(1, temperature=0.5, top_k=2)
    body = wire.request_body("agentr1-check", token_array([1]), sampling, 1)
    try:
        answer = await client.post(wire.GENERATE, {**body, "top_logprobs_num": 2})
    except RequestRefused:
        return False
    meta = answer.get("meta_info", {}) if isinstance(answer, dict) else {}
    if "output_token_sampling_logprobs" not in meta:
        return False
    whole = np.array([entry[0] for entry in meta["output_top_logprobs"][0]])
    expected = meta["output_token_logprobs"][0][0] - np.logaddexp.reduce(whole)
    return bool(np.isclose(meta["output_token_sampling_logprobs"][0], expected, atol=1e-2))


def _read_config(path: Path) -> dict[str, Any] | None:
    """Of the language model where there is more than that; ``None`` where it cannot be read."""
    try:
        config: dict[str, Any] = json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return None
    return {**config, **config.get("text_config", {})}
