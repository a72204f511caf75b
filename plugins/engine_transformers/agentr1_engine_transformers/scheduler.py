"""Continuous batching: which requests are prefilled when, and what happens at each step.

The worker thread owns one scheduler and calls it between commands; nothing here locks or waits. A forward that
fails costs the requests that were in it, never the engine.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

import torch

from agentr1_core.engine import Generation
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason
from agentr1_engine_transformers.lane import CachedLane, Lane, RecomputingLane, alike
from agentr1_engine_transformers.prefill import PrefillJob, plan_waves, prefill
from agentr1_engine_transformers.prefix_store import PrefixStore
from agentr1_engine_transformers.request import Request
from agentr1_engine_transformers.runner import ModelRunner
from agentr1_engine_transformers.sampling import SamplingPlan, sample
from agentr1_engine_transformers.settings import EngineSettings
from agentr1_engine_transformers.slab import Block

#: A prefill forward stalls all that decode; a few newcomers wait this many steps for company.
_PATIENCE = 4
#: Newcomers that are this share of the running ones do not wait.
_QUORUM = 8

_MEND_MEMORY = "Lower `engine.max_running`, `engine.max_batch_tokens` or `engine.prefix_cache_bytes`."

#: How a request ended: its result or the error.
Outcome = tuple[Request, Generation | EngineError]


class Scheduler:
    """The requests of one model: waiting, running, and the prefixes of finished ones."""

    def __init__(self, runner: ModelRunner, settings: EngineSettings) -> None:
        self.runner = runner
        self.version = 0
        self.outcomes: list[Outcome] = []
        self._settings = settings
        self._waiting: deque[Request] = deque()
        self._lanes: list[Lane] = []
        self._store: PrefixStore | None = None
        if settings.prefix_cache and runner.layout is not None:
            affordable = settings.prefix_cache_bytes // max(runner.layout.bytes_per_token, 1)
            self._store = PrefixStore(min(settings.prefix_cache_tokens, affordable))
        self._patience = 0

    @property
    def n_running(self) -> int:
        """Requests being decoded."""
        return sum(len(lane.rows) for lane in self._lanes)

    @property
    def busy(self) -> bool:
        """Whether any request is unfinished."""
        return bool(self._waiting) or any(lane.rows for lane in self._lanes)

    def submit(self, request: Request) -> None:
        """Take a new request."""
        self._waiting.append(request)

    def advance(self) -> None:
        """Prefill who waits, if it is time, and let every lane take one step."""
        self._admit()
        for lane in self._lanes:
            self._step(lane)
        self._lanes = [lane for lane in self._lanes if lane.rows]

    def changed_weights(self, version: int) -> None:
        """Forget every key and value; whatever runs is prefilled anew before its next token."""
        self.version = version
        if self._store is not None:
            self._store.clear()
        running = [row for lane in self._lanes for row in lane.rows]
        self._lanes = []
        self._waiting.extendleft(reversed(running))

    def stop(self, matches: Callable[[Request], bool]) -> None:
        """End the requests that match, keeping what they have sampled."""
        for request in [request for request in self._waiting if matches(request)]:
            self._waiting.remove(request)
            self._finish(request, None)
        for lane in self._lanes:
            alive = [row for row, request in enumerate(lane.rows) if not matches(request)]
            if len(alive) < len(lane.rows):
                for row in set(range(len(lane.rows))).difference(alive):
                    self._finish(lane.rows[row], lane.export(row) if self._wants(lane.rows[row]) else None)
                lane.keep(alive)
        self._lanes = [lane for lane in self._lanes if lane.rows]

    def fail(self, error: Exception) -> None:
        """End every request with an error."""
        running = [row for lane in self._lanes for row in lane.rows]
        self._lanes = []
        self._fail([*running, *self._waiting], error)
        self._waiting.clear()

    def _admit(self) -> None:
        running = self.n_running
        room = self._settings.max_running - running
        if not self._waiting or room <= 0:
            return
        if running and len(self._waiting) * _QUORUM < running and self._patience < _PATIENCE:
            self._patience += 1
            return
        self._patience = 0
        newcomers = [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]
        now = time.perf_counter()
        for request in newcomers:
            request.admitted = request.admitted or now
        if self.runner.layout is None:
            for request in newcomers:
                request.decoding = request.decoding or now
            self._place(newcomers, [() for _ in newcomers])
            return
        jobs, groups = self._jobs(newcomers)
        for wave in plan_waves(jobs, self._settings.max_batch_tokens, allow_gaps=self.runner.allows_gaps):
            self._prefill([jobs[i] for i in wave], [groups[i] for i in wave])

    def _jobs(self, requests: Sequence[Request]) -> tuple[list[PrefillJob], list[list[Request]]]:
        """One job for each different context, and the requests that share it."""
        jobs: list[PrefillJob] = []
        groups: list[list[Request]] = []
        known: dict[bytes, int] = {}
        for request in requests:
            tokens = request.context()
            key = tokens.tobytes()
            if self._store is not None and key in known:
                groups[known[key]].append(request)
                if not request.tokens:
                    request.cached_tokens = len(tokens) - 1
                continue
            known[key] = len(jobs)
            hit = None if self._store is None else self._store.longest(request.session, tokens)
            n_cached, prefix = hit or (0, None)
            jobs.append(PrefillJob(tokens, n_cached, prefix))
            groups.append([request])
            if not request.tokens:
                request.cached_tokens = n_cached
        return jobs, groups

    def _prefill(self, jobs: Sequence[PrefillJob], groups: Sequence[Sequence[Request]]) -> None:
        """Compute one wave, sample everyone's next token and let the unfinished join the lanes."""
        requests = [request for group in groups for request in group]
        job_of = [index for index, group in enumerate(groups) for _ in group]
        try:
            logits, computed = prefill(self.runner, jobs)
            plan = SamplingPlan.of([r.sampling for r in requests], [r.noise for r in requests], self.runner.device)
            sampled, logprobs = sample(logits[torch.tensor(job_of, device=logits.device)], plan)
            tokens, values = sampled.tolist(), logprobs.tolist()
            _check_finite(values)
        except (RuntimeError, ValueError, IndexError, TypeError, MemoryError) as error:
            self._fail(requests, error)
            return
        now = time.perf_counter()
        going, blocks = [], []
        for row, request in enumerate(requests):
            request.decoding = request.decoding or now
            block = computed[job_of[row]]
            if request.add(tokens[row], values[row], self.version):
                self._finish(request, tuple(part.clone() for part in block) if self._wants(request) else None)
            else:
                going.append(request)
                blocks.append(block)
        self._place(going, blocks)

    def _place(self, requests: Sequence[Request], blocks: Sequence[Block]) -> None:
        """Put requests into the lanes that suit their length, new ones where none does."""
        left = sorted(zip(requests, blocks, strict=True), key=lambda pair: -pair[0].n_context)
        while left:
            longest = left[0][0].n_context
            lane = next((lane for lane in self._lanes if lane.accepts(longest)), None) or self._new_lane()
            fits = [alike(longest, r.n_context) and lane.accepts(r.n_context) for r, _ in left]
            joining = [pair for pair, fit in zip(left, fits, strict=True) if fit]
            left = [pair for pair, fit in zip(left, fits, strict=True) if not fit]
            members = [request for request, _ in joining]
            try:
                lane.add(members, [block for _, block in joining])
            except (RuntimeError, MemoryError) as error:
                self._drop(lane, [*lane.rows, *(member for member in members if member not in lane.rows)], error)

    def _new_lane(self) -> Lane:
        layout = self.runner.layout
        lane: Lane = RecomputingLane(self.runner) if layout is None else CachedLane(self.runner, layout)
        self._lanes.append(lane)
        return lane

    def _step(self, lane: Lane) -> None:
        if not lane.rows:
            return
        try:
            tokens, logprobs = lane.step()
            _check_finite(logprobs)
        except (RuntimeError, ValueError, IndexError, TypeError, MemoryError) as error:
            self._drop(lane, list(lane.rows), error)
            return
        alive = []
        for row, request in enumerate(lane.rows):
            if request.add(tokens[row], logprobs[row], self.version):
                self._finish(request, lane.export(row) if self._wants(request) else None)
            else:
                alive.append(row)
        if len(alive) < len(lane.rows):
            lane.keep(alive)

    def _wants(self, request: Request) -> bool:
        """Whether the request's keys and values are worth a copy."""
        return self._store is not None and request.session is not None

    def _finish(self, request: Request, block: Block | None) -> None:
        if block is not None and self._store is not None and request.session is not None:
            self._store.put(request.session, request.context()[: block[0].shape[2]], block)
        request.finish = request.finish or FinishReason.ABORT
        self.outcomes.append((request, request.result()))

    def _drop(self, lane: Lane, requests: Iterable[Request], error: Exception) -> None:
        self._lanes = [other for other in self._lanes if other is not lane]
        self._fail(requests, error)

    def _fail(self, requests: Iterable[Request], error: Exception) -> None:
        if isinstance(error, torch.OutOfMemoryError) and self._store is not None:
            self._store.clear()
            torch.cuda.empty_cache()
        mend = _MEND_MEMORY if isinstance(error, (torch.OutOfMemoryError, MemoryError)) else None
        for request in requests:
            failure = EngineError(
                f"The forward pass of the transformers engine failed: {type(error).__name__}: {error}", mend
            )
            failure.__cause__ = error
            self.outcomes.append((request, failure))


def _check_finite(logprobs: Sequence[float]) -> None:
    """Raise ``ValueError`` if the model gave no proper distribution, as one whose training diverged does."""
    if not all(map(math.isfinite, logprobs)):
        raise ValueError("the model's logits are not finite; its weights have probably diverged")
