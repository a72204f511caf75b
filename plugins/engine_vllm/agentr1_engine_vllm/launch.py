"""The command and the environment of a vLLM server that the engine starts itself.

The server listens on the loopback interface only, always: its routes for weights run code. It finds the worker
extension through a folder on its path that holds nothing but this package, so that no library of the trainer's
environment gets into the server's.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from agentr1_core.errors import EngineError
from agentr1_core.serving import Launch, free_port, server_environment
from agentr1_engine_vllm.checks import Installation
from agentr1_engine_vllm.server import require_token
from agentr1_engine_vllm.settings import VLLMSettings

HOST = "127.0.0.1"
#: The ranks that vLLM's ``--max-lora-rank`` takes.
LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_PACKAGE = Path(__file__).parent


def plan_launch(settings: VLLMSettings, model: str, found: Installation, scratch: Path, log: Path) -> Launch:
    """Command, environment and address of a server.

    Args:
        settings: Of the engine.
        model: Folder or hub id.
        found: The vLLM of ``settings.python``.
        scratch: A folder for what the server must find.
        log: The server's log file.
    """
    port = settings.port or free_port()
    token = secrets.token_urlsafe(32)
    command = [
        str(settings.python),
        "-m",
        "vllm.entrypoints.openai.api_server",
        *_options(settings, model, port, found),
    ]
    env = server_environment(settings, VLLM_NO_USAGE_STATS="1")
    if settings.lora == "adapter":
        env["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] = "1"
    env |= {
        "VLLM_SERVER_DEV_MODE": "1",
        require_token.VARIABLE: token,
        "PYTHONPATH": str(_path_with_this_package(scratch)),
    }
    return Launch(tuple(command), env, log, f"http://{HOST}:{port}", token)


def _options(settings: VLLMSettings, model: str, port: int, found: Installation) -> list[str]:
    eager = found.cpu if settings.enforce_eager is None else settings.enforce_eager
    block_size = settings.block_size or (32 if found.cpu else None)
    cache_gib = settings.kv_cache_gib or (1.0 if found.cpu else None)
    options = [
        *("--model", model),
        *("--served-model-name", settings.served_name),
        *("--host", HOST, "--port", str(port)),
        *("--dtype", settings.dtype),
        *("--logprobs-mode", "processed_logprobs"),
        *("--generation-config", "vllm"),  # sampling is what the request says; stop ids are read all the same
        *("--worker-extension-cls", "agentr1_engine_vllm.server.worker_extension.WeightExtension"),
        *("--middleware", "agentr1_engine_vllm.server.require_token.RequireToken"),
        "--enable-scale-out",
        "--enable-prompt-tokens-details",
        "--disable-uvicorn-access-log",
    ]
    if settings.max_model_len is not None:
        options += ["--max-model-len", str(settings.max_model_len)]
    if block_size is not None:
        options += ["--block-size", str(block_size)]
    if cache_gib is not None:
        options += ["--kv-cache-memory-bytes", str(int(cache_gib * 2**30))]
    if eager:
        options.append("--enforce-eager")
    if settings.lora == "adapter":
        options += ["--enable-lora", "--max-loras", "1", "--max-lora-rank", str(_lora_rank(settings.lora_rank))]
    return [*options, *settings.extra_args]


def _lora_rank(wanted: int) -> int:
    """The smallest rank that vLLM can be told and that has room for the wanted one.

    Raises:
        EngineError: There is none.
    """
    for rank in LORA_RANKS:
        if rank >= wanted:
            return rank
    raise EngineError(
        f"`engine.lora_rank` is {wanted}; vLLM's largest is {LORA_RANKS[-1]}.", "Train a smaller adapter."
    )


def _path_with_this_package(scratch: Path) -> Path:
    folder = scratch / "path"
    link = folder / _PACKAGE.name
    try:
        folder.mkdir(exist_ok=True)
        if not link.is_symlink():
            link.symlink_to(_PACKAGE, target_is_directory=True)
    except OSError as error:
        raise EngineError(f"No folder for the server could be made in {scratch}: {error}") from error
    return folder
