"""Requests and answers of vLLM's token-in, token-out route, as plain functions.

The engine sends what ``request_body`` makes and reads answers with ``read_generation``. An answer that is not exactly
what was asked for is an ``EngineError``, never a guess: what is read here is trained on.
"""

from __future__ import annotations

import math
from typing import Any

from agentr1_core.engine import Generation, SamplingParams
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason, TokenArray, VersionSpan, float_array, token_array

GENERATE = "/inference/v1/generate"
ABORT = "/abort_requests"
#: vLLM puts this before the ids of requests; ``ABORT`` wants it too.
REQUEST_PREFIX = "generate-tokens-"
#: vLLM's stand-in for log-probs that are NaN or minus infinity.
_NO_LOGPROB = -9999.0

_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORT}


def request_body(
    request_id: str, model: str, prompt: TokenArray, sampling: SamplingParams, max_tokens: int
) -> dict[str, Any]:
    """The body of one generate request."""
    params: dict[str, Any] = {
        "max_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "stop_token_ids": list(sampling.stop_token_ids),
        "logprobs": 0,  # of the sampled token alone
        "detokenize": False,
    }
    if sampling.seed is not None:
        params["seed"] = sampling.seed
    return {"request_id": request_id, "model": model, "token_ids": prompt.tolist(), "sampling_params": params}


def read_generation(answer: Any, sampling: SamplingParams, max_tokens: int) -> Generation:
    """What one answer says.

    Args:
        answer: The JSON of ``GENERATE``.
        sampling: How it was asked for.
        max_tokens: Longest action that was asked for.

    Raises:
        EngineError: Something is missing, contradicts itself, or is shorter than asked for without a reason.
    """
    try:
        choice = answer["choices"][0]
        ids = [int(token) for token in choice["token_ids"] or ()]
        reason = choice["finish_reason"]
        content = (choice.get("logprobs") or {}).get("content") or []
        logprobs = [float(entry["logprob"]) for entry in content]
        scored = [int(entry["token_id"]) for entry in content]
        spans = [(span["version"], int(span["start"]), int(span["end"])) for span in choice["weight_versions"] or ()]
        cached = int(((answer.get("usage") or {}).get("prompt_tokens_details") or {}).get("cached_tokens") or 0)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(
            f"vLLM's answer is not understood ({type(error).__name__}: {error}): {str(answer)[:200]}"
        ) from error
    if reason not in _REASONS:
        raise EngineError(f"vLLM ended an action for the reason {reason!r}, which is none of {', '.join(_REASONS)}.")
    finish = _REASONS[reason]
    if scored != ids:
        raise EngineError(
            f"vLLM gave log-probs for {len(scored)} tokens of an action of {len(ids)}, or for other ones.",
            "The server must give log-probs of the sampled tokens; do not change that by `engine.extra_args`.",
        )
    if any(not math.isfinite(value) or value <= _NO_LOGPROB for value in logprobs):
        raise EngineError("vLLM could not score a token it sampled: the model's logits are not finite.")
    if not ids and finish is not FinishReason.ABORT:
        raise EngineError(f"vLLM gave an action without tokens (finish reason {reason!r}).")
    if finish is FinishReason.LENGTH and len(ids) < max_tokens:
        raise EngineError(
            f"vLLM cut an action at {len(ids)} of {max_tokens} tokens: its context is shorter than it says.",
            "Set `engine.max_model_len` to the server's own.",
        )
    if sampling.temperature == 0:
        logprobs = [0.0] * len(ids)  # a point mass; vLLM scores greedy tokens under the softmax
    return Generation(
        token_ids=token_array(ids),
        logprobs=float_array(logprobs),
        finish_reason=finish,
        version_spans=_spans(spans, len(ids)),
        cached_tokens=cached,
    )


def version_number(said: str) -> int:
    """The version that a server's label stands for; 0 for ``default``, the weights it loaded when it started.

    Raises:
        EngineError: It is a label that this engine does not give.
    """
    if said == "default":
        return 0
    try:
        return int(said)
    except ValueError:
        raise EngineError(f"The server has weights of version {said!r}, which somebody else gave it.") from None


def _spans(said: list[tuple[str, int, int]], n_tokens: int) -> tuple[VersionSpan, ...]:
    position = 0
    spans = []
    for label, start, end in said:
        if start != position or end < start:
            raise EngineError(f"vLLM's version spans do not follow each other: {said}")
        if end > start:
            spans.append(VersionSpan(end - start, version_number(label)))
        position = end
    if position != n_tokens:
        raise EngineError(f"vLLM's version spans cover {position} of {n_tokens} tokens.")
    return tuple(spans)
