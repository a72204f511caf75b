"""The settings of the chat engine, as they stand under ``engine:`` in a run file.

The engine reads them once, in its constructor; nothing changes them afterwards.
"""

from __future__ import annotations

import os
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from agentr1_core.errors import ConfigError

OPENAI_URL = "https://api.openai.com/v1"
#: Fields of a request that the engine writes itself.
RESERVED = frozenset({"messages", "model", "n", "stream", "tools"})


class OpenAISettings(BaseModel):
    """Which service to ask, for which model, and how patiently."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: str = Field(min_length=1, description="The model's name at the service.")
    base_url: str = Field(default=OPENAI_URL, description="Address that `/chat/completions` is added to.")
    api_key_env: str | None = Field(
        default=None, description="Environment variable with the API key; `OPENAI_API_KEY` for OpenAI's own address."
    )
    headers: dict[str, str] = Field(default_factory=dict, description="More headers of every request.")
    stop: tuple[str, ...] = Field(default=(), max_length=16, description="Texts that end an answer.")
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = Field(
        default="max_tokens", description="What the service calls the limit; newer OpenAI models want the second."
    )
    omit: tuple[Literal["max_tokens", "seed", "temperature", "top_p"], ...] = Field(
        default=(), description="Sampling parameters that the service refuses and that are not sent."
    )
    extra_body: dict[str, Any] = Field(default_factory=dict, description="More fields of every request.")
    request_timeout_s: float = Field(default=200.0, gt=0, description="Seconds for one request.")
    give_up_after_s: float = Field(
        default=240.0,
        gt=0,
        description="Seconds for one answer with its retries; less than `rollout.step_timeout_s`, so that a service "
        "that is down is a failed episode and not one that ran out of time.",
    )
    retries: int = Field(default=6, ge=0, description="Tries more when the service is busy, failing or unreachable.")
    retry_delay_s: float = Field(default=1.0, ge=0, description="Seconds before the first retry; doubles with each.")
    max_retry_delay_s: float = Field(default=60.0, ge=0, description="The longest of these delays.")

    @field_validator("base_url")
    @classmethod
    def _address(cls, url: str) -> str:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"'{url}' is no http:// or https:// address")
        return url.rstrip("/").removesuffix("/chat/completions")

    @model_validator(mode="after")
    def _keep_what_is_promised(self) -> Self:
        for name in sorted(RESERVED & self.extra_body.keys()):
            raise ValueError(f"extra_body: {name} is set by the engine itself")
        return self

    @property
    def key_variable(self) -> str | None:
        """The environment variable that the key is read from; a key is only sent where it is meant to go."""
        return "OPENAI_API_KEY" if self.api_key_env is None and self.base_url == OPENAI_URL else self.api_key_env

    def api_key(self) -> str | None:
        """The key; ``None`` where none is wanted.

        Raises:
            ConfigError: The variable is not set.
        """
        if self.key_variable is None:
            return None
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            raise ConfigError(
                f"`engine.api_key_env`: the environment variable '{self.key_variable}' is not set, and {self.base_url} "
                "wants a key.",
                f"Set it: export {self.key_variable}=...",
            )
        return key
