"""The settings that all engines have in common whose servers run in processes of their own.

Engine plugins inherit from ``ServerSettings`` and add those of their server.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agentr1_core.serving.client import is_loopback


class ServerSettings(BaseModel):
    """Which server to start, or which ones to use."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Options of the server that the engine sets itself; another value would break what it promises.
    reserved: ClassVar[tuple[str, ...]] = ()

    model: str | None = Field(default=None, description="Folder or hub id; the run's model when unset.")
    python: Path = Field(
        default=Path(sys.executable), description="Interpreter that has the server; agentr1's own when unset."
    )
    urls: tuple[str, ...] = Field(
        default=(), description="Servers that run already; none is started then. Sessions stay on one of them."
    )
    token_env: str = Field(
        default="AGENTR1_SERVER_TOKEN", description="Environment variable with the API key of the servers in `urls`."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        default="auto", description="Type of the weights; `float32` agrees best with the trainer."
    )
    threads: int | None = Field(default=None, ge=1, description="CPU threads of the server; its own choice when unset.")
    port: int | None = Field(
        default=None, ge=1, le=65535, description="On the loopback interface; a free one when unset."
    )
    extra_args: tuple[str, ...] = Field(default=(), description="More options of the server, one word each.")
    env: dict[str, str] = Field(default_factory=dict, description="More environment variables of the server.")
    weights_dir: Path | None = Field(
        default=None, description="Where weights are kept; shared memory when unset. Servers in `urls` must see it too."
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
            if word.split("=")[0].replace("_", "-") in self.reserved:
                raise ValueError(f"extra_args: {word.split('=')[0]} is set by the engine itself")
        for url in self.urls:
            if not url.startswith(("http://", "https://")):
                raise ValueError(f"urls: '{url}' is no http:// or https:// address")
        return self

    @property
    def remote_urls(self) -> tuple[str, ...]:
        """Those of ``urls`` that are not on this machine's loopback interface."""
        return tuple(url for url in self.urls if not is_loopback(url))
