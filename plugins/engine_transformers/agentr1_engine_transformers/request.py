"""One ``generate`` call on its way through the engine.

The engine makes a request, the worker thread alone changes it, and ``result`` turns what was sampled into the
contract's ``Generation``. It holds no tensors.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import numpy as np

from agentr1_core.engine import Generation, SamplingParams
from agentr1_core.mdp import FinishReason, TokenArray, VersionSpan, float_array, token_array
from agentr1_engine_transformers.noise import NoiseStream


@dataclass(slots=True, eq=False)
class Request:
    """A call with what it has sampled so far. Times are seconds of ``time.perf_counter``."""

    prompt: TokenArray
    sampling: SamplingParams
    session: str | None
    #: Token ids that end the action: the caller's and the model's.
    stop_ids: frozenset[int]
    #: Most tokens it may sample: ``max_tokens`` or what the context leaves.
    limit: int
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Generation]
    #: Its own random numbers; ``None`` for greedy decoding.
    noise: NoiseStream | None
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    #: Pairs of version and number of tokens.
    spans: list[list[int]] = field(default_factory=list)
    cached_tokens: int = 0
    finish: FinishReason | None = None
    submitted: float = field(default_factory=time.perf_counter)
    admitted: float | None = None
    decoding: float | None = None

    @property
    def n_context(self) -> int:
        """Prompt and sampled tokens together."""
        return len(self.prompt) + len(self.tokens)

    def context(self) -> TokenArray:
        """The prompt followed by what was sampled, ``(n_context,)`` int32."""
        if not self.tokens:
            return self.prompt
        return np.concatenate([self.prompt, token_array(self.tokens)])

    def add(self, token: int, logprob: float, version: int) -> bool:
        """Record one sampled token; return whether the action is complete."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if self.spans and self.spans[-1][0] == version:
            self.spans[-1][1] += 1
        else:
            self.spans.append([version, 1])
        if token in self.stop_ids:
            self.finish = FinishReason.STOP
        elif len(self.tokens) >= self.limit:
            self.finish = FinishReason.LENGTH
        return self.finish is not None

    def result(self) -> Generation:
        """What was sampled, complete or not; an unfinished action counts as aborted."""
        now = time.perf_counter()
        admitted = now if self.admitted is None else self.admitted
        decoding = now if self.decoding is None else self.decoding
        return Generation(
            token_ids=token_array(self.tokens),
            logprobs=float_array(self.logprobs),
            finish_reason=self.finish or FinishReason.ABORT,
            version_spans=tuple(VersionSpan(n_tokens=n, version=version) for version, n in self.spans),
            cached_tokens=self.cached_tokens,
            timings={"queued": admitted - self.submitted, "prefill": decoding - admitted, "decode": now - decoding},
        )
