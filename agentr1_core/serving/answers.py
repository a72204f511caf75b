"""From a server's answer to a ``Generation``: what every engine checks, whatever the answer looked like.

Engine plugins read the fields of their server's JSON and hand them over. What contradicts itself is an
``EngineError``, never a guess: what is read here is trained on.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from agentr1_core.engine import Generation, SamplingParams
from agentr1_core.errors import EngineError
from agentr1_core.mdp import FinishReason, VersionSpan, float_array, token_array

_REASONS = {"stop": FinishReason.STOP, "length": FinishReason.LENGTH, "abort": FinishReason.ABORT}
#: vLLM's stand-in for log-probs that are NaN or minus infinity.
_NO_LOGPROB = -9999.0


def generation(
    server: str,
    ids: Sequence[int],
    scored: Sequence[int],
    logprobs: Sequence[float],
    reason: object,
    spans: Sequence[tuple[str, int, int]],
    cached: int,
    sampling: SamplingParams,
    max_tokens: int,
) -> Generation:
    """The action that a server sampled.

    Args:
        server: Its name, for messages.
        ids: Sampled tokens.
        scored: Tokens that the log-probs belong to.
        logprobs: Nats, of the distribution that was sampled from.
        reason: Why it ended: ``stop``, ``length`` or ``abort``.
        spans: Label of the weights, first token, and the one after the last.
        cached: Prompt tokens that were cached.
        sampling: How it was asked for. Greedy tokens get the log-prob 0, whatever the server said.
        max_tokens: Longest action that was asked for.

    Raises:
        EngineError: The fields contradict each other, or the action is shorter than asked for without a reason.
    """
    finish = _REASONS.get(reason) if isinstance(reason, str) else None
    if finish is None:
        raise EngineError(
            f"{server} ended an action for the reason {reason!r}, which is none of {', '.join(_REASONS)}."
        )
    if list(scored) != list(ids) or len(logprobs) != len(ids):
        raise EngineError(
            f"{server} gave log-probs for {len(logprobs)} tokens of an action of {len(ids)}, or for other ones.",
            "The server must give log-probs of the sampled tokens; do not change that by `engine.extra_args`.",
        )
    if any(not math.isfinite(value) or value <= _NO_LOGPROB for value in logprobs):
        raise EngineError(f"{server} could not score a token it sampled: the model's logits are not finite.")
    if not ids and finish is not FinishReason.ABORT:
        raise EngineError(f"{server} gave an action without tokens (finish reason {reason!r}).")
    if finish is FinishReason.LENGTH and len(ids) < max_tokens:
        raise EngineError(
            f"{server} cut an action at {len(ids)} of {max_tokens} tokens: its context is shorter than it says.",
            "Set the engine's context length to the server's own.",
        )
    if sampling.temperature == 0:
        logprobs = [0.0] * len(ids)  # a point mass; servers score greedy tokens under the softmax
    return Generation(
        token_ids=token_array(ids),
        logprobs=float_array(logprobs),
        finish_reason=finish,
        version_spans=_version_spans(server, spans, len(ids)),
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


def _version_spans(server: str, said: Sequence[tuple[str, int, int]], n_tokens: int) -> tuple[VersionSpan, ...]:
    position = 0
    spans = []
    for label, start, end in said:
        if start != position or end < start:
            raise EngineError(f"{server}'s version spans do not follow each other: {said}")
        if end > start:
            spans.append(VersionSpan(end - start, version_number(label)))
        position = end
    if position != n_tokens:
        raise EngineError(f"{server}'s version spans cover {position} of {n_tokens} tokens.")
    return tuple(spans)
