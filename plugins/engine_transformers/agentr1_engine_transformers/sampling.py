"""Drawing the next token of every row of a batch, with its log-prob under the distribution drawn from.

The scheduler makes one ``SamplingPlan`` whenever the rows of a batch change and calls ``sample`` at every step.
Rows may differ in every parameter; each draws from its own stream of noise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentr1_core.engine import SamplingParams
from agentr1_engine_transformers.noise import NoiseStream


@dataclass(frozen=True, slots=True)
class SamplingPlan:
    """The parameters of a batch as tensors; ``None`` where no row needs them."""

    #: ``(n_rows, 1)`` float32, 1 for greedy rows.
    temperature: Tensor | None
    #: Indices of the rows that decode greedily, ``(n_greedy,)``.
    greedy: Tensor | None
    #: Indices of the rows whose support is truncated, ``(n_cut,)``, and their parameters, each ``(n_cut, 1)``.
    cut: Tensor | None
    top_k: Tensor | None
    top_p: Tensor | None
    min_p: Tensor | None
    #: One stream for each row; ``None`` for greedy rows.
    streams: tuple[NoiseStream | None, ...]

    @classmethod
    def of(
        cls, params: Sequence[SamplingParams], streams: Sequence[NoiseStream | None], device: torch.device
    ) -> SamplingPlan:
        """Gather the parameters of the rows of a batch."""
        greedy = [row for row, p in enumerate(params) if p.temperature == 0]
        cut = [row for row, p in enumerate(params) if p.temperature > 0 and p.truncates_support]

        def column(values: list[float], dtype: torch.dtype) -> Tensor | None:
            return torch.tensor(values, dtype=dtype, device=device).unsqueeze(1) if values else None

        def index(rows: list[int]) -> Tensor | None:
            return torch.tensor(rows, device=device) if rows else None

        tempered = any(p.temperature not in (0.0, 1.0) for p in params)
        return cls(
            temperature=column([p.temperature or 1.0 for p in params], torch.float32) if tempered else None,
            greedy=index(greedy),
            cut=index(cut),
            top_k=column([params[row].top_k for row in cut], torch.int64),
            top_p=column([params[row].top_p for row in cut], torch.float32),
            min_p=column([params[row].min_p for row in cut], torch.float32),
            streams=tuple(streams),
        )


def sample(logits: Tensor, plan: SamplingPlan) -> tuple[Tensor, Tensor]:
    """Draw one token for each row.

    Exponential race (Gumbel-max in another guise): with independent E_v ~ Exp(1), argmax_v p_v / E_v is distributed
    as p (Maddison, Tarlow and Minka 2014, "A* sampling"). The noise is float64, for float32 exponentials are too
    coarse near zero: over a large vocabulary they would let tokens of no probability win.

    Args:
        logits: ``(n_rows, n_vocab)``, any float type.
        plan: The rows' parameters.

    Returns:
        Token ids ``(n_rows,)`` int64 and log-probs in nats ``(n_rows,)`` float32; 0 for greedy rows, and NaN where
        the logits are no numbers.
    """
    scores = logits.float()
    if plan.temperature is not None:
        scores = scores / plan.temperature
    if plan.greedy is not None and len(plan.greedy) == len(logits):
        return _likeliest(scores)
    probs = torch.softmax(scores, dim=-1)
    if plan.cut is not None and plan.top_k is not None and plan.top_p is not None and plan.min_p is not None:
        probs[plan.cut] = truncate(probs[plan.cut], plan.top_k, plan.top_p, plan.min_p)
    noise = torch.ones(probs.shape, dtype=torch.float64, device=probs.device)
    for row, stream in enumerate(plan.streams):
        if stream is not None:
            stream.fill(noise[row])
    # A draw of exactly zero would turn into 0/0 for a token outside the support.
    noise.clamp_(min=1e-300)
    tokens = (probs / noise).argmax(-1)
    logprobs = probs.gather(1, tokens.unsqueeze(1)).squeeze(1).log()
    if plan.greedy is not None:
        tokens[plan.greedy], logprobs[plan.greedy] = _likeliest(scores[plan.greedy])
    return tokens, logprobs


def _likeliest(scores: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest token of each row and the log-prob 0, or NaN if its score is no finite number."""
    best, tokens = scores.max(-1)
    return tokens, torch.where(best.isfinite(), 0.0, torch.nan)


def truncate(probs: Tensor, top_k: Tensor, top_p: Tensor, min_p: Tensor) -> Tensor:
    """Keep the ``top_k`` likeliest tokens, of these the smallest set with mass ``top_p``, of these those likely enough.

    The order is that of transformers: top-k, then top-p of what is left, then min-p relative to the likeliest token.

    Args:
        probs: ``(n_rows, n_vocab)`` probabilities after temperature.
        top_k: ``(n_rows, 1)`` int64, 0 for off.
        top_p: ``(n_rows, 1)``, 1 for off.
        min_p: ``(n_rows, 1)``, 0 for off.

    Returns:
        The probabilities of the truncated distribution, zero outside its support.
    """
    ranked, order = probs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(probs.shape[-1], device=probs.device)
    kept = torch.where((rank < top_k) | (top_k == 0), ranked, 0.0)
    kept = kept / kept.sum(-1, keepdim=True)
    before = kept.cumsum(-1) - kept
    wanted = (rank == 0) | (((before < top_p) | (top_p >= 1)) & (ranked >= min_p * ranked[:, :1]))
    kept = torch.where(wanted, kept, 0.0)
    kept = kept / kept.sum(-1, keepdim=True)
    return torch.zeros_like(probs).scatter_(1, order, kept)
