"""Computing the contexts of new requests, several at once, on top of whatever prefix of them is cached.

The scheduler plans waves with ``plan_waves`` and runs each with ``prefill``. Neither samples nor changes requests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentr1_core.mdp import TokenArray
from agentr1_engine_transformers.runner import ModelRunner
from agentr1_engine_transformers.slab import Block, Slab


@dataclass(frozen=True, slots=True)
class PrefillJob:
    """One context to compute: its first ``n_cached`` tokens are in ``prefix``."""

    tokens: TokenArray
    n_cached: int = 0
    prefix: Block | None = None

    @property
    def n_new(self) -> int:
        """Tokens to compute, at least one."""
        return len(self.tokens) - self.n_cached


def plan_waves(jobs: Sequence[PrefillJob], max_tokens: int, *, allow_gaps: bool) -> Iterator[list[int]]:
    """Group jobs of like size, by index, so that a wave's padded tokens stay within ``max_tokens``.

    A single job may exceed it.
    Without gaps a job with a cached prefix goes alone: padding would part it from its prefix.
    """
    order = sorted(range(len(jobs)), key=lambda i: (jobs[i].n_cached > 0, jobs[i].n_new))
    wave: list[int] = []
    cached = 0
    for index in order:
        job = jobs[index]
        if wave:
            first = jobs[wave[0]]
            cached_now = max(cached, job.n_cached)
            split = (
                (job.n_cached > 0) != (first.n_cached > 0)
                or (job.n_cached > 0 and not allow_gaps)
                or job.n_new > 2 * first.n_new + 32
                or (len(wave) + 1) * (cached_now + job.n_new) > max_tokens
            )
            if split:
                yield wave
                wave, cached = [], 0
        wave.append(index)
        cached = max(cached, job.n_cached)
    if wave:
        yield wave


def prefill(runner: ModelRunner, jobs: Sequence[PrefillJob]) -> tuple[Tensor, list[Block]]:
    """Compute a wave.

    Cached prefixes end at one column and new tokens at the last one; masked columns may lie between.

    Returns:
        Logits after each context, ``(n_jobs, n_vocab)``, and each context's keys and values (views where possible).
    """
    if runner.layout is None:
        raise ValueError("prefill needs a model that works with a key-value cache.")
    n_new = max(job.n_new for job in jobs)
    n_cached = max(job.n_cached for job in jobs)
    width = n_cached + n_new
    slab = Slab(runner.layout, len(jobs), width, 0, runner.device)
    slab.end = width
    ids = torch.zeros(len(jobs), n_new, dtype=torch.int64)
    positions = torch.zeros(len(jobs), n_new, dtype=torch.int64)
    mask = torch.zeros(len(jobs), width, dtype=torch.bool)
    for row, job in enumerate(jobs):
        ids[row, n_new - job.n_new :] = torch.from_numpy(job.tokens[job.n_cached :])
        positions[row, n_new - job.n_new :] = torch.arange(job.n_cached, len(job.tokens))
        mask[row, n_cached - job.n_cached : n_cached] = True
        mask[row, width - job.n_new :] = True
        if job.prefix is not None:
            slab.put(row, job.prefix, n_cached)
    padded = not bool(mask.all())
    device = runner.device
    logits = runner.cached(slab, ids.to(device), positions.to(device), mask.to(device) if padded else None)
    return logits, [_block(slab, row, job, n_cached, width) for row, job in enumerate(jobs)]


def _block(slab: Slab, row: int, job: PrefillJob, n_cached: int, width: int) -> Block:
    """One job's keys and values, the gap left out."""
    if job.n_cached == 0 or job.n_new == width - n_cached:
        return slab.view(row, width - len(job.tokens), width)
    before = slab.view(row, n_cached - job.n_cached, n_cached)
    after = slab.view(row, width - job.n_new, width)
    return tuple(torch.cat(parts, dim=2) for parts in zip(before, after, strict=True))
