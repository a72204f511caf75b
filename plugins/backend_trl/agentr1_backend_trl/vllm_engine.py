"""TRL's own vLLM as an engine, for scripts with ``use_vllm=True``.

The trainer makes it when no other engine is given. TRL starts vLLM, sends it the weights and generates for a list of
prompts; this adapter collects waiting requests into such lists. It generates in the thread that trains, because vLLM
and its collectives belong to it: environments wait meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, ClassVar

from agentr1_core.engine import EngineCapabilities, Generation, Health, InferenceEngine, SamplingParams, WeightSource
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason, TokenArray, VersionSpan, float_array, token_array

#: Seconds that requests wait for company.
GATHERING_S = 0.01


@dataclass(slots=True)
class _Request:
    prompt: list[int]
    sampling: SamplingParams
    session: str | None
    future: asyncio.Future[Generation]


class TRLVLLMEngine(InferenceEngine):
    """Drives ``GRPOTrainer._generate_single_turn``.

    Temperature, top-p, top-k and min-p are those of the ``GRPOConfig``, also in evaluation: TRL hands vLLM no others.
    """

    name: ClassVar[str] = "trl-vllm"

    def __init__(self, trainer: Any) -> None:
        self._trainer = trainer
        self._waiting: list[_Request] = []
        self._serving: asyncio.Task[None] | None = None

    @property
    def capabilities(self) -> EngineCapabilities:
        """What it can do; weights reach it through TRL alone."""
        longest = self._trainer.args.vllm_max_model_length
        if longest is None:
            longest = getattr(self._trainer.model.config.get_text_config(), "max_position_embeddings", None)
        return EngineCapabilities(logprobs=True, weight_sync=frozenset({"trl"}), max_context=longest)

    async def start(self) -> None:
        """Nothing to do: TRL has started vLLM."""

    async def generate(
        self, prompt_ids: TokenArray, sampling: SamplingParams, *, session: str | None = None
    ) -> Generation:
        """Sample one action together with whoever else waits; see the contract."""
        if len(prompt_ids) == 0:
            raise EngineError("The prompt is empty.", "Give at least one token.")
        future: asyncio.Future[Generation] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Request(prompt_ids.tolist(), sampling, session, future))
        if self._serving is None or self._serving.done():
            self._serving = asyncio.create_task(self._serve())
        return await future

    async def update_weights(self, weights: WeightSource, version: int) -> None:
        """Not used: TRL sends the weights."""
        raise EngineError("TRL's vLLM takes weights from TRL only.", "Do not call update_weights on this engine.")

    async def abort(self, session: str) -> None:
        """Give up what waits for ``session``; a list already handed to vLLM is finished."""
        gone = [request for request in self._waiting if request.session == session]
        self._waiting = [request for request in self._waiting if request.session != session]
        for request in gone:
            if not request.future.done():
                empty = Generation(token_array([]), float_array([]), FinishReason.ABORT, ())
                request.future.set_result(empty)

    async def health(self) -> Health:
        """Whether it can serve."""
        return Health(ready=True, weight_version=self._trainer.state.global_step, running=len(self._waiting))

    async def close(self) -> None:
        """Give up what waits; vLLM itself lives as long as the trainer."""
        for request in self._waiting:
            if not request.future.done():
                request.future.set_exception(EngineError("The engine was closed."))
        self._waiting = []

    async def _serve(self) -> None:
        while self._waiting:
            await asyncio.sleep(GATHERING_S)
            batch, self._waiting = self._waiting, []
            by_length: dict[int, list[_Request]] = defaultdict(list)
            for request in batch:
                if not request.future.cancelled():
                    by_length[request.sampling.max_tokens].append(request)
            for longest, requests in by_length.items():
                self._generate(longest, requests)
                await asyncio.sleep(0)  # the episodes go on between two lists

    def _generate(self, longest: int, requests: list[_Request]) -> None:
        backend = self._trainer.vllm_generation
        usual, backend.max_completion_length = backend.max_completion_length, longest
        try:
            found, logprobs = self._trainer._generate_single_turn([r.prompt for r in requests], None, {}, 1)
        except Exception as error:  # vLLM raises anything; the collector decides about retries
            for request in requests:
                if not request.future.done():
                    request.future.set_exception(EngineError(f"vLLM failed: {type(error).__name__}: {error}"))
            return
        finally:
            backend.max_completion_length = usual
        for request, ids, values in zip(requests, found, logprobs, strict=True):
            if not request.future.done():
                request.future.set_result(self._generation(request, list(ids), list(values)))

    def _generation(self, request: _Request, ids: list[int], logprobs: list[float | None]) -> Generation:
        stops = {*request.sampling.stop_token_ids, *self._trainer.eos_token_ids}
        end = next((position + 1 for position, token in enumerate(ids) if token in stops), None)
        ids, logprobs = ids[:end], logprobs[:end]
        # vLLM cannot score some tokens; a NaN keeps them out of training, and the ledger counts them.
        scored = float_array([float("nan") if value is None else value for value in logprobs])
        reason = FinishReason.LENGTH if end is None else FinishReason.STOP
        spans = (VersionSpan(len(ids), self._trainer.state.global_step),) if ids else ()
        return Generation(token_array(ids), scored, reason, spans)
