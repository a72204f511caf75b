"""The ``generate`` of OpenRLHF's rollout actor around an engine of agentr1, in vLLM's shapes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class VllmShaped:
    """Takes vLLM's sampling parameters and gives what vLLM's answers are read for."""

    def __init__(self, engine: Any) -> None:
        self.engine = engine

    async def generate(self, prompt_token_ids: Any, sampling_params: Any, multi_modal_data: Any = None) -> Any:
        from agentr1_core.engine import SamplingParams
        from agentr1_core.mdp import token_array

        told = SamplingParams(
            max_tokens=sampling_params.max_tokens,
            temperature=sampling_params.temperature,
            top_p=sampling_params.top_p,
            stop_token_ids=tuple(sampling_params.stop_token_ids),
        )
        found = await self.engine.generate(token_array(prompt_token_ids), told)
        sampled = zip(found.token_ids.tolist(), found.logprobs.tolist(), strict=True)
        output = SimpleNamespace(
            token_ids=tuple(found.token_ids.tolist()),
            logprobs=[{token: SimpleNamespace(logprob=logprob)} for token, logprob in sampled],
            finish_reason=found.finish_reason.value,
        )
        return SimpleNamespace(outputs=[output], num_cached_tokens=found.cached_tokens)
