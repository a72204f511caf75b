"""Requests and answers of vLLM's token-in, token-out route, as plain functions.

The engine sends what ``request_body`` makes and reads answers with ``read_generation``. An answer that is not exactly
what was asked for is an ``EngineError``, never a guess: what is read here is trained on.
"""

from __future__ import annotations

from typing import Any

from agentr1_core.engine import Generation, SamplingParams
from agentr1_core.errors import EngineError
from agentr1_core.mdp import TokenArray
from agentr1_core.serving import generation

GENERATE = "/inference/v1/generate"
ABORT = "/abort_requests"
#: vLLM puts this before the ids of requests; ``ABORT`` wants it too.
REQUEST_PREFIX = "generate-tokens-"


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
    return generation("vLLM", ids, scored, logprobs, reason, spans, cached, sampling, max_tokens)
