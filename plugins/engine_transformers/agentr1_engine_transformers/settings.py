"""The settings of the embedded engine, as they stand under ``engine:`` in a run file.

The engine reads them once, in its constructor; nothing changes them afterwards.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class EngineSettings(BaseModel):
    """How to load the model and how much to run at once."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str | None = Field(
        default=None, description="Folder or hub id of the model; none when a live one is shared."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(default="auto", description="Type of the weights.")
    device: str = Field(
        default="auto", description="`auto` takes a GPU when there is one; else a torch device such as `cpu`."
    )
    trust_remote_code: bool = Field(default=False, description="Run code that comes with the model.")
    max_running: int = Field(default=256, ge=1, description="Sequences decoded together; further requests wait.")
    max_batch_tokens: int = Field(
        default=16_384, ge=1, description="Prompt tokens, padding included, of one prefill forward."
    )
    prefix_cache: bool = Field(default=True, description="Keep keys and values of finished calls for the next turn.")
    prefix_cache_tokens: int = Field(
        default=65_536, ge=0, description="Tokens kept by the prefix cache, oldest dropped first."
    )
    prefix_cache_bytes: int = Field(
        default=2 * 1024**3, ge=0, description="Memory of the prefix cache; the tighter of both limits holds."
    )
    max_context: int | None = Field(
        default=None, ge=2, description="Longest prompt plus action; the model's own when unset."
    )
    threads: int | None = Field(
        default=None, ge=1, description="CPU threads of a forward; unset: 1 for tiny models, else torch's."
    )
