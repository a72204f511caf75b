"""The settings of the vLLM engine, as they stand under ``engine:`` in a run file.

The engine reads them once, in its constructor; nothing changes them afterwards.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from agentr1_core.serving import ServerSettings

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


class VLLMSettings(ServerSettings):
    """Which server to start, or which ones to use; see ``ServerSettings`` for what is not special to vLLM."""

    reserved: ClassVar[tuple[str, ...]] = RESERVED

    token_env: str = Field(
        default="AGENTR1_VLLM_TOKEN", description="Environment variable with the API key of the servers in `urls`."
    )
    served_name: str = Field(default="policy", min_length=1, description="The model's name in requests.")
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
