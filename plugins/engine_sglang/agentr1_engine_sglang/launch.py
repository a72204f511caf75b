"""The command and the environment of an SGLang server that the engine starts itself.

The server listens on the loopback interface only, always. Its key stands in a file that only this user can read, since
everybody on the machine sees command lines.
"""

from __future__ import annotations

import secrets
from pathlib import Path

from agentr1_core.errors import EngineError
from agentr1_core.serving import Launch, free_port, server_environment
from agentr1_engine_sglang.checks import Installation
from agentr1_engine_sglang.settings import SGLangSettings

HOST = "127.0.0.1"
#: Log-probs are wanted after the temperature, and a server whose worker died is to end at once, not to look for dumps.
_ALWAYS = {
    "SGLANG_RETURN_ORIGINAL_LOGPROB": "0",
    "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
    "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
    "SGLANG_TIMEOUT_KEEP_ALIVE": "3600",  # the engine closes idle connections, so that none closes under a request
}
_CPU_TOKENS = 65536


def plan_launch(settings: SGLangSettings, model: str, found: Installation, scratch: Path, log: Path) -> Launch:
    """Command, environment and address of a server.

    Args:
        settings: Of the engine.
        model: Folder or hub id.
        found: The SGLang of ``settings.python``.
        scratch: A folder for the file with the key.
        log: The server's log file.

    Raises:
        EngineError: The file with the key cannot be written.
    """
    cpu = runs_on_cpu(settings, found)
    port, token = settings.port or free_port(), secrets.token_urlsafe(32)
    command = [
        str(settings.python),
        "-m",
        "sglang.launch_server",
        *("--config", str(_write_key(scratch, token))),
        *_options(settings, model, port, cpu),
    ]
    env = server_environment(settings) | _ALWAYS
    if cpu:
        env["SGLANG_USE_CPU_ENGINE"] = "1"
    return Launch(tuple(command), env, log, f"http://{HOST}:{port}", token)


def runs_on_cpu(settings: SGLangSettings, found: Installation) -> bool:
    """Whether the server will compute on CPU."""
    return settings.device == "cpu" or (settings.device == "auto" and found.cpu)


def _options(settings: SGLangSettings, model: str, port: int, cpu: bool) -> list[str]:
    options = [
        *("--model-path", model),
        *("--host", HOST, "--port", str(port)),
        *("--dtype", settings.dtype),
        "--skip-tokenizer-init",
        "--skip-server-warmup",
    ]
    if cpu:
        options += ["--device", "cpu", "--sampling-backend", "pytorch", "--grammar-backend", "none"]
        options += ["--disable-cuda-graph", "--mem-fraction-static", "0.3"]
        options.append("--sleep-on-idle")  # a server that waits leaves the CPU to the trainer
    attention = settings.attention_backend or ("torch_native" if cpu else None)
    if attention is not None:
        options += ["--attention-backend", attention]
    if settings.context_length is not None:
        options += ["--context-length", str(settings.context_length)]
    tokens = settings.max_total_tokens or (_CPU_TOKENS if cpu else None)
    if tokens is not None:
        options += ["--max-total-tokens", str(tokens)]
    if settings.deterministic:
        options.append("--enable-deterministic-inference")
    if settings.colocate:
        options += ["--enable-memory-saver", "--enable-weights-cpu-backup"]
    return [*options, *settings.extra_args]


def _write_key(scratch: Path, token: str) -> Path:
    path = scratch / "server.yaml"
    try:
        path.touch(mode=0o600)
        path.write_text(f"api-key: {token}\n")
    except OSError as error:
        raise EngineError(f"The server's key could not be written to {path}: {error}") from error
    return path
