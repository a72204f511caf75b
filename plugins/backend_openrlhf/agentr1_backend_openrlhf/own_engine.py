"""The engines that OpenRLHF starts itself, as an engine of agentr1.

``engine: openrlhf`` in a run file means them. Inside OpenRLHF's rollout workers ``bound_to`` makes the engine from the
handle that an agent executor is given; OpenRLHF pushes the weights by itself.
"""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from agentr1_core.engine import EngineCapabilities, Generation, Health, InferenceEngine, SamplingParams, WeightSource
from agentr1_core.errors import EngineError, PluginError
from agentr1_core.mdp import FinishReason, TokenArray, VersionSpan, float_array, token_array


class OpenRLHFEngineSettings(BaseModel):
    """Settings of ``engine: openrlhf``; they become flags of the launch."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    num_engines: int = Field(default=1, ge=1, description="vLLM engines to start.")
    tensor_parallel_size: int = Field(default=1, ge=1, description="GPUs of each.")
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1, description="Share of GPU memory for each.")
    enforce_eager: bool = Field(default=False, description="Run without CUDA graphs.")
    enable_sleep: bool = Field(default=False, description="Free GPU memory while the policy trains.")


class OpenRLHFEngine(InferenceEngine):
    """vLLM inside OpenRLHF, reached through the handle of an agent executor."""

    name: ClassVar[str] = "openrlhf"
    Settings: ClassVar[type[BaseModel]] = OpenRLHFEngineSettings
