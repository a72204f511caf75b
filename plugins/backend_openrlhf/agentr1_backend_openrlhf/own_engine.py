"""The engines that OpenRLHF starts itself, as an engine of agentr1.

``engine: openrlhf`` in a run file means them. Inside OpenRLHF's rollout workers ``attached`` makes the engine from the
handle that an agent executor is given; OpenRLHF pushes the weights by itself.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field

from agentr1_core.engine import EngineCapabilities, Generation, Health, InferenceEngine, SamplingParams, WeightSource
from agentr1_core.errors import EngineError, PluginError
from agentr1_core.mdp import FinishReason, TokenArray, float_array, token_array


class OpenRLHFEngineSettings(BaseModel):
    """Settings of ``engine: openrlhf``; they become flags of the launch."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    num_engines: int = Field(default=1, ge=1, description="vLLM engines to start.")
    tensor_parallel_size: int = Field(default=1, ge=1, description="GPUs of each.")
    gpu_memory_utilization: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="Share of a GPU's memory; 0.6 where the policy shares it, else OpenRLHF's.",
    )
    enforce_eager: bool = Field(default=False, description="Run without CUDA graphs.")
    enable_sleep: bool | None = Field(
        default=None, description="Free GPU memory while the policy trains; by default where both share it."
    )


class OpenRLHFEngine(InferenceEngine):
    """vLLM inside OpenRLHF, reached through the handle of an agent executor."""

    name: ClassVar[str] = "openrlhf"
    Settings: ClassVar[type[BaseModel]] = OpenRLHFEngineSettings

    def __init__(self, settings: BaseModel | None = None, **more: Any) -> None:
        self._settings = settings
        self._handle: Any = None
        self._sampling_type: Any = None
        self._max_context: int | None = None

    @classmethod
    def attached(cls, handle: Any, sampling_type: Any, max_context: int) -> OpenRLHFEngine:
        """The engine behind a handle.

        Args:
            handle: The ``llm_engine`` of an agent executor.
            sampling_type: The class of its sampling parameters.
            max_context: Longest prompt plus action, in tokens.
        """
        engine = cls()
        engine._handle, engine._sampling_type, engine._max_context = handle, sampling_type, max_context
        return engine

    @property
    def capabilities(self) -> EngineCapabilities:
        """Weights arrive through OpenRLHF, so that no route of agentr1's is offered."""
        return EngineCapabilities(logprobs=True, prefix_cache=True, max_context=self._max_context)

    async def start(self) -> None:
        if self._handle is None:
            raise EngineError(
                "Engine 'openrlhf' runs only inside an OpenRLHF launch.",
                "Train with `backend: openrlhf`, or set `engine.name` to another engine.",
            )

    async def generate(
        self, prompt_ids: TokenArray, sampling: SamplingParams, *, session: str | None = None
    ) -> Generation:
        await self.start()
        if not len(prompt_ids):
            raise EngineError("The prompt is empty.", "Render at least one token.")
        params = self._sampling_type(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k or -1,
            min_p=sampling.min_p,
            seed=sampling.seed,
            stop_token_ids=list(sampling.stop_token_ids),
            skip_special_tokens=False,
            logprobs=0,
        )
        try:
            answer = await self._handle.generate(prompt_ids.tolist(), params)
        except (RuntimeError, ValueError, OSError) as error:
            raise EngineError(f"OpenRLHF's engine failed: {type(error).__name__}: {error}") from error
        output = answer.outputs[0]
        ids = token_array(list(output.token_ids))
        if output.logprobs is None or len(output.logprobs) != len(ids):
            raise EngineError("OpenRLHF's engine gave no log-prob for each sampled token.")
        logprobs = [float(of[int(token)].logprob) for token, of in zip(ids, output.logprobs, strict=True)]
        if sampling.temperature == 0:
            logprobs = [0.0] * len(ids)
        if any(math.isnan(value) for value in logprobs):
            raise EngineError("OpenRLHF's engine gave a log-prob that is no number.")
        return Generation(
            ids,
            float_array(logprobs),
            _finish(output.finish_reason),
            version_spans=(),
            cached_tokens=int(answer.num_cached_tokens or 0),
        )

    async def update_weights(self, weights: WeightSource, version: int) -> None:
        raise PluginError("Engine 'openrlhf' gets its weights from OpenRLHF.", "Leave them to its trainer.")

    async def abort(self, session: str) -> None:
        """Cancelling the call is enough: vLLM aborts a request that nobody waits for."""

    async def health(self) -> Health:
        return Health(ready=self._handle is not None)

    async def close(self) -> None:
        self._handle = None


def _finish(reason: Any) -> FinishReason:
    if reason == "length":
        return FinishReason.LENGTH
    return FinishReason.ABORT if reason == "abort" else FinishReason.STOP
