"""Requests and answers of SGLang's token-in, token-out route, as plain functions.

The engine sends what ``request_body`` makes and reads answers with ``read_generation``. An answer that is not exactly
what was asked for is an ``EngineError``, never a guess: what is read here is trained on.

SGLang's ordinary log-probs follow the temperature but know nothing of top-k, top-p and min-p. Where one of these is
set, the log-probs of the tokens that were left to sample from are asked for as well, and only those are read.
"""

from __future__ import annotations

from typing import Any

from agentr1_core.engine import Generation, SamplingParams
from agentr1_core.errors import EngineError
from agentr1_core.mdp import TokenArray
from agentr1_core.serving import generation

GENERATE = "/generate"
ABORT = "/abort_request"
#: Tokens that are left to sample from, at most, where top-p or min-p is set without top-k: SGLang reports no more.
SUPPORT = 4096


def request_body(request_id: str, prompt: TokenArray, sampling: SamplingParams, max_tokens: int) -> dict[str, Any]:
    """The body of one generate request."""
    params: dict[str, Any] = {
        "max_new_tokens": max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k or -1,
        "min_p": sampling.min_p,
        "stop_token_ids": list(sampling.stop_token_ids),
    }
    if sampling.seed is not None:
        params["sampling_seed"] = sampling.seed % 2**63
    body: dict[str, Any] = {
        "rid": request_id,
        "input_ids": prompt.tolist(),
        "sampling_params": params,
        "return_logprob": True,
        "stream": False,
    }
    if needs_support(sampling):
        params["top_k"] = min(sampling.top_k or SUPPORT, SUPPORT)
        body["return_sampling_mask"] = True
    return body


def needs_support(sampling: SamplingParams) -> bool:
    """Whether SGLang's ordinary log-probs are not those of the distribution that is sampled from."""
    return sampling.truncates_support and sampling.temperature > 0


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
        meta = answer["meta_info"]
        ids = [int(token) for token in answer["output_ids"]]
        reason = meta["finish_reason"]["type"]
        # What was aborted before it began has none of these.
        scored = [(float(entry[0]), int(entry[1])) for entry in meta.get("output_token_logprobs") or ()]
        spans = [(span["version"], int(span["start"]), int(span["end"])) for span in meta.get("weight_versions") or ()]
        cached = int(meta.get("cached_tokens") or 0)
        logprobs = [logprob for logprob, _ in scored]
        if needs_support(sampling):
            logprobs = [float(value) for value in meta.get("output_token_sampling_logprobs") or ()]
            if reason == "abort" and not logprobs:  # nor has what was aborted while it waited to be computed anew
                ids, scored, spans = [], [], []
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise EngineError(
            f"SGLang's answer is not understood ({type(error).__name__}: {error}): {str(answer)[:200]}"
        ) from error
    return generation(
        "SGLang", ids, [token for _, token in scored], logprobs, reason, spans, cached, sampling, max_tokens
    )
