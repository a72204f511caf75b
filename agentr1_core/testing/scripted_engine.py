"""An engine that says what you tell it to: for testing environments, flows and the collector without a model.

Its log-probs are made up, so nothing it samples may be trained on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from agentr1_core.engine import EngineCapabilities, Generation, Health, InferenceEngine, SamplingParams, WeightSource
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason, TokenArray, VersionSpan, token_array


class ScriptedEngine(InferenceEngine):
    """Answers from a script.

    Args:
        tokenizer: Turns the script into tokens; anything with ``encode``, ``decode`` and ``eos_token_id``.
        script: Either the answers of each session in order (the last one repeats), or a function from the prompt's
            text to the answer.
        max_context: Reported as the engine's limit.
        delay_s: Seconds each token takes; ``abort`` then keeps those already said.
        faults: So many calls raise ``EngineError`` before the first one succeeds.
    """

    name = "scripted"

    def __init__(
        self,
        tokenizer: Any,
        script: Sequence[str] | Callable[[str], str],
        *,
        max_context: int | None = None,
        delay_s: float = 0.0,
        faults: int = 0,
    ) -> None:
        self.tokenizer = tokenizer
        self.script = script
        self.delay_s = delay_s
        self.faults_left = faults
        self.version = 0
        #: Sampling parameters of every call, in order.
        self.calls: list[SamplingParams] = []
        self.closed = 0
        self._max_context = max_context
        self._turns: dict[str | None, int] = {}
        self._aborts: dict[str, asyncio.Event] = {}

    @property
    def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities(weight_sync=frozenset({"live"}), abort=True, seed=True, max_context=self._max_context)

    async def start(self) -> None:
        """Nothing to load."""

    async def generate(
        self, prompt_ids: TokenArray, sampling: SamplingParams, *, session: str | None = None
    ) -> Generation:
        self.calls.append(sampling)
        if self.closed or len(prompt_ids) == 0:
            raise EngineError("The scripted engine is closed." if self.closed else "The prompt is empty.")
        room = sampling.max_tokens if self._max_context is None else self._max_context - len(prompt_ids)
        if room < 1:
            raise EngineError(f"A prompt of {len(prompt_ids)} tokens leaves no room in {self._max_context}.")
        if self.faults_left > 0:
            self.faults_left -= 1
            raise EngineError("The scripted engine was told to fail.")
        said = [*self.tokenizer.encode(self._say(prompt_ids, session)), self.tokenizer.eos_token_id]
        stops = [n for n, token in enumerate(said, start=1) if token in sampling.stop_token_ids]
        said = said[: stops[0]] if stops else said
        ids = said[: min(sampling.max_tokens, room)]
        finish = FinishReason.STOP if len(ids) == len(said) else FinishReason.LENGTH
        if self.delay_s:
            n_done = await self._speak(session or "", len(ids))
            if n_done < len(ids):
                ids, finish = ids[:n_done], FinishReason.ABORT
        return Generation(
            token_ids=token_array(ids),
            logprobs=np.full(len(ids), -1.0 if sampling.temperature > 0 else 0.0, dtype=np.float32),
            finish_reason=finish,
            version_spans=(VersionSpan(len(ids), self.version),),
        )

    def _say(self, prompt_ids: TokenArray, session: str | None) -> str:
        if callable(self.script):
            return self.script(self.tokenizer.decode(prompt_ids.tolist()))
        turn = self._turns.get(session, 0)
        self._turns[session] = turn + 1
        return self.script[min(turn, len(self.script) - 1)]

    async def _speak(self, session: str, n_tokens: int) -> int:
        """Take the time it takes; the number of tokens said before an abort."""
        abort = self._aborts.setdefault(session, asyncio.Event())
        for n_done in range(n_tokens):
            try:
                await asyncio.wait_for(abort.wait(), self.delay_s)
            except TimeoutError:
                continue
            del self._aborts[session]
            return n_done
        return n_tokens

    async def update_weights(self, weights: WeightSource, version: int) -> None:
        if weights.kind not in self.capabilities.weight_sync:
            raise EngineError(f"The scripted engine has no weights to take by '{weights.kind}'.")
        self.version = version

    async def abort(self, session: str) -> None:
        self._aborts.setdefault(session, asyncio.Event()).set()

    async def health(self) -> Health:
        return Health(ready=not self.closed, weight_version=self.version)

    async def close(self) -> None:
        self.closed += 1
