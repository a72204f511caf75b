"""The settings of the SGLang engine, as they stand under ``engine:`` in a run file.

The engine reads them once, in its constructor; nothing changes them afterwards.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from agentr1_core.serving import ServerSettings

#: Options that the engine sets itself; another value would break what it promises.
RESERVED = (
    "--admin-api-key",
    "--api-key",
    "--config",
    "--device",
    "--enable-deterministic-inference",
    "--enable-memory-saver",
    "--enable-weights-cpu-backup",
    "--host",
    "--model",
    "--model-path",
    "--port",
    "--skip-tokenizer-init",
    "--speculative-algorithm",
    "--weight-version",
)


class SGLangSettings(ServerSettings):
    """Which server to start, or which ones to use; see ``ServerSettings`` for what is not special to SGLang."""

    reserved: ClassVar[tuple[str, ...]] = RESERVED

    token_env: str = Field(
        default="AGENTR1_SGLANG_TOKEN", description="Environment variable with the API key of the servers in `urls`."
    )
    router: str | None = Field(
        default=None,
        description="A router in front of the servers in `urls`: actions go through it, weights and aborts to them.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field(
        default="auto", description="Where the server computes; CPU where its torch is a build for CPUs."
    )
    context_length: int | None = Field(
        default=None, ge=16, description="Longest prompt plus action; the model's own when unset."
    )
    max_total_tokens: int | None = Field(
        default=None, ge=1, description="Tokens that the cache holds; 65536 on CPU when unset, else SGLang's choice."
    )
    attention_backend: str | None = Field(
        default=None, description="SGLang's attention; `torch_native` on CPU when unset, else SGLang's choice."
    )
    deterministic: bool = Field(
        default=False, description="Sampling that follows seeds, whatever else is in flight; slower. Not on CPU."
    )
    weight_sync: Literal["file", "tensors", "broadcast"] = Field(
        default="file",
        description="Weights reach the server as files, through shared memory, or by NCCL (gloo on CPU).",
    )
    colocate: bool = Field(
        default=False,
        description="The server gives its GPU memory back while the trainer trains. Not on CPU, not with `urls`.",
    )

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.router is not None and not self.urls:
            raise ValueError("router: name the servers behind it in `urls`; weights are sent to each of them")
        if self.router is not None and not self.router.startswith(("http://", "https://")):
            raise ValueError(f"router: '{self.router}' is no http:// or https:// address")
        if self.urls and (self.deterministic or self.colocate):
            raise ValueError("deterministic, colocate: servers in `urls` are started with these, not told afterwards")
        if self.device == "cpu" and (self.deterministic or self.colocate):
            raise ValueError("deterministic, colocate: SGLang cannot do that on CPU")
        return self
