"""What a call is worth, and how well an episode searched. Pure functions; the environment calls them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

from agentr1_core.mdp import Trajectory

#: Papers with a selector score of at least this count as relevant.
RELEVANT = 0.4
#: At most so many new papers of one call count.
TOP = 3
#: What a call costs.
COST: Mapping[str, float] = {"search": 0.1, "expand": 0.05}
#: A repeated query, a paper that is unknown or expanded already, or a call that cannot be run.
PENALTY = -0.5
#: Sizes at which recall is told.
SIZES = (20, 50, 100)


class CallOutcome(StrEnum):
    """What became of one call; each is a counter ``calls/<outcome>``."""

    NEW = "new"  #: it found papers that the pool did not have
    NOTHING_NEW = "nothing_new"
    REPEATED = "repeated"  #: the same query, or a paper that was expanded already
    UNKNOWN = "unknown"  #: a paper that is not in the pool
    INVALID = "invalid"  #: it did not parse, names no tool, or has wrong arguments
    LEFT_OUT = "left_out"  #: beyond the limit on calls in one step; not run


def call_reward(tool: str, outcome: CallOutcome, scores: Sequence[float]) -> float:
    """The reward of one call.

    Args:
        tool: ``search`` or ``expand``.
        outcome: What became of it.
        scores: Selector scores in [0, 1] of the papers that it newly found.

    Returns:
        With new papers: how many of the ``TOP`` best are ``RELEVANT``, less the call's cost. Without: 0. The penalty
        for a repeated, unknown or invalid call.
    """
    if outcome in (CallOutcome.REPEATED, CallOutcome.UNKNOWN, CallOutcome.INVALID):
        return PENALTY
    if outcome is not CallOutcome.NEW:
        return 0.0
    best = sorted(scores, reverse=True)[:TOP]
    return sum(score >= RELEVANT for score in best) - COST[tool]


def retrieval_metrics(ranked: Sequence[str], answers: Collection[str]) -> dict[str, float]:
    """How well a ranked list of papers answers a question.

    Args:
        ranked: Ids of all papers found, best first, each once.
        answers: Ids of the right ones; at least one.

    Returns:
        ``recall`` and ``precision`` of the whole list, and ``recall@20``, ``recall@50``, ``recall@100``, all in [0, 1].
        The precision of an empty list is 0.
    """
    wanted = frozenset(answers)
    hits = [name in wanted for name in ranked]
    return {
        "recall": sum(hits) / len(wanted),
        "precision": sum(hits) / len(hits) if hits else 0.0,
        **{f"recall@{size}": sum(hits[:size]) / len(wanted) for size in SIZES},
    }


def paper_recall(trajectory: Trajectory) -> float | None:
    """A reward on the whole episode: the recall at its end; ``None`` where the task has no answers to compare with."""
    if not trajectory.steps:
        return 0.0
    found = trajectory.steps[-1].info.get("recall")
    return None if found is None else float(found)
