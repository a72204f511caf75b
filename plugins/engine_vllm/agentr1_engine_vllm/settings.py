"""The settings of the vLLM engine, as they stand under ``engine:`` in a run file.

The engine reads them once, in its constructor; nothing changes them afterwards.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agentr1_core.serving import is_loopback

#: Options that the engine sets itself; another value would break what it promises.
RESERVED = (
    "--api-key",
    "--enable-prompt-tokens-details",
    "--enable-scale-out",
    "--host",
    "--logprobs-mode",
    "--middleware",
    "--model",
    "--port",
    "--served-model-name",
    "--tokens-only",
    "--worker-extension-cls",
)


class VLLMSettings(BaseModel):
    """Which server to start, or which ones to use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(default=None, description="Folder or hub id; the run's model when unset.")
    python: Path = Field(
        default=Path(sys.executable),
        description="Interpreter that has vLLM, such as `.venvs/vllm/bin/python`; agentr1's own when unset.",
    )
    urls: tuple[str, ...] = Field(
        default=(), description="Servers that run already; none is started then. Sessions stay on one of them."
    )
    token_env: str = Field(
        default="AGENTR1_VLLM_TOKEN", description="Environment variable with the API key of the servers in `urls`."
    )
    served_name: str = Field(default="policy", min_length=1, description="The model's name in requests.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Type of the weights; `float32` agrees best with the trainer."
    )
    max_model_len: int | None = Field(
        default=None, ge=2, description="Longest prompt plus action; the model's own when unset."
    )
    block_size: int | None = Field(
        default=None, ge=1, description="Tokens of a block of the prefix cache; 32 on CPU when unset."
    )
    kv_cache_gib: float | None = Field(
        default=None, gt=0, description="Memory for keys and values; 1 on CPU when unset, vLLM's choice on GPU."
    )
    enforce_eager: bool | None = Field(
        default=None, description="Skip compilation; on CPU when unset, where it takes minutes."
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads of the server; its own choice when unset.")
    port: int | None = Field(
        default=None, ge=1, le=65535, description="On the loopback interface; a free one when unset."
    )
    extra_args: tuple[str, ...] = Field(default=(), description="More options of `vllm serve`, one word each.")
    env: dict[str, str] = Field(default_factory=dict, description="More environment variables of the server.")
    weight_sync: Literal["file", "broadcast"] = Field(
        default="file",
        description="Weights reach the server as files in memory, or from the trainer's memory by NCCL (gloo on CPU).",
    )
    lora: Literal["merge", "adapter"] = Field(
        default="merge", description="A LoRA adapter in training is merged into whole weights, or sent by itself."
    )
    lora_rank: int = Field(
        default=64, ge=1, description="The largest rank for which a server that is started keeps room."
    )
    weights_dir: Path | None = Field(
        default=None, description="Where they are kept; shared memory when unset. Servers in `urls` must see it too."
    )
    on_update: Literal["continue", "finish"] = Field(
        default="continue",
        description="Actions in flight go on under new weights, with version spans, or finish before them.",
    )
    startup_timeout_s: float = Field(default=600.0, gt=0, description="Seconds for the server to become ready.")
    request_timeout_s: float = Field(default=600.0, gt=0, description="Seconds for one action or one weight update.")
    max_restarts: int = Field(default=3, ge=0, description="How often a server that ended is started again.")
    run_dir: Path | None = Field(default=None, description="Folder for the server's log; set by the run.")

    @field_validator("python", "weights_dir", "run_dir")
    @classmethod
    def _home(cls, path: Path | None) -> Path | None:
        """``~`` is the user's home folder."""
        return None if path is None else path.expanduser()

    @model_validator(mode="after")
    def _keep_what_is_promised(self) -> Self:
        for word in self.extra_args:
            if word.split("=")[0].replace("_", "-") in RESERVED:
                raise ValueError(f"extra_args: {word.split('=')[0]} is set by the engine itself")
        for url in self.urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"urls: '{url}' is no http:// or https:// address")
        return self

    @property
    def remote_urls(self) -> tuple[str, ...]:
        """Those of ``urls`` that are not on this machine's loopback interface."""
        return tuple(url for url in self.urls if not is_loopback(url))
