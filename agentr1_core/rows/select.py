"""Which sampled tokens train, decided step by step before any row is laid out.

``make_rows`` calls it, so that separate and merged rows train exactly the same tokens. It never looks at how steps
share a prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentr1_core.credit import Credit, ordered_steps
from agentr1_core.errors import ConfigError, DataError
from agentr1_core.mdp import FloatArray, Group, Step, Trajectory
from agentr1_core.rows.ledger import Ledger
from agentr1_core.rows.row import CONTEXT


@dataclass(frozen=True, slots=True)
class Selection:
    """The rules for leaving tokens out; ``make_rows`` explains them."""

    max_length: int | None = None
    policy_version: int | None = None
    max_lag: int | None = None
    zero_advantage: Literal["keep", "drop"] = "keep"

    def __post_init__(self) -> None:
        if self.max_length is not None and self.max_length < 1:
            raise ConfigError(f"max_length is {self.max_length}.", "Give a length of at least 1 token, or none.")
        if self.max_lag is not None and self.max_lag < 0:
            raise ConfigError(f"max_lag is {self.max_lag}.", "Give 0 or more versions, or none.")
        if self.max_lag is not None and self.policy_version is None:
            raise ConfigError("max_lag is set, but not the policy_version it is counted from.", "Give both or neither.")


@dataclass(frozen=True, slots=True, eq=False)
class TrainedStep:
    """A step with at least one token that trains. Arrays are ``(n_tokens,)``, one entry for each sampled token."""

    step: Step
    mask: NDArray[np.bool_]
    advantages: FloatArray
    returns: FloatArray | None
    versions: NDArray[np.int32]
    values: FloatArray | None = None


@dataclass(slots=True)
class TokenCount:
    """A ledger being written."""

    sampled: int = 0
    trained: int = 0
    masked: Counter[str] = field(default_factory=Counter)
    dropped: Counter[str] = field(default_factory=Counter)

    def close(self) -> Ledger:
        """The finished ledger, without reasons that never occurred."""
        return Ledger(self.sampled, self.trained, dict(+self.masked), dict(+self.dropped))


def select_steps(
    groups: Sequence[Group], credit: Credit, rules: Selection, count: TokenCount
) -> Iterator[tuple[Group, Trajectory, list[TrainedStep]]]:
    """Yield each trajectory with its trained steps, in ``CreditBatch.from_groups`` order, writing ``count``.

    Raises:
        ValueError: The credit does not have one entry for each sampled token of the groups.
        DataError: ``max_lag`` is set and a version is unknown, or version spans do not cover an action.
    """
    expected = sum(trajectory.n_sampled for group in groups for trajectory in group.trajectories)
    if len(credit.advantages) != expected:
        raise ValueError(
            f"The credit covers {len(credit.advantages)} tokens, but the groups hold {expected} sampled ones; "
            "estimate it from these very groups."
        )
    start = 0
    for group in groups:
        for failed in group.failed:
            count.sampled += failed.n_sampled
            count.dropped[str(failed.stop_reason)] += failed.n_sampled
        for trajectory in group.trajectories:
            trained = []
            for step in ordered_steps(trajectory):
                tokens = slice(start, start + len(step.action))
                start = tokens.stop
                chosen = _select_tokens(trajectory, step, credit, tokens, rules, count)
                if chosen is not None:
                    trained.append(chosen)
            yield group, trajectory, trained


def _select_tokens(
    trajectory: Trajectory, step: Step, credit: Credit, tokens: slice, rules: Selection, count: TokenCount
) -> TrainedStep | None:
    n = len(step.action)
    count.sampled += n
    if rules.max_length is not None and len(step.prompt_ids) + n > rules.max_length:
        count.dropped["too_long"] += n
        return None
    advantages = credit.advantages[tokens].astype(np.float32)
    versions = _token_versions(trajectory, step)
    mask = np.ones(n, dtype=np.bool_)
    # A token is counted under the first reason that holds.
    for reason, holds in (
        ("unscorable", np.full(n, not trajectory.is_scorable)),
        ("truncated", np.zeros(n, dtype=np.bool_) if credit.masked is None else credit.masked[tokens]),
        ("stale", _stale(trajectory, step, versions, rules)),
        ("no_logprob", ~np.isfinite(step.action.logprobs)),
    ):
        count.masked[reason] += int(np.sum(mask & holds))
        mask &= ~holds
    left = int(mask.sum())
    if rules.zero_advantage == "drop" and not np.any(advantages[mask]):
        count.dropped["zero_advantage"] += left
        return None
    count.trained += left
    if not left:
        return None
    returns = None if credit.returns is None else credit.returns[tokens].astype(np.float32)
    values = None if credit.values is None else credit.values[tokens].astype(np.float32)
    return TrainedStep(step, mask, advantages, returns, versions, values)


def _stale(trajectory: Trajectory, step: Step, versions: NDArray[np.int32], rules: Selection) -> NDArray[np.bool_]:
    if rules.max_lag is None or rules.policy_version is None:
        return np.zeros(len(versions), dtype=np.bool_)
    if np.any(versions == CONTEXT):
        raise DataError(
            f"Trajectory '{trajectory.id}', step {step.index}: max_lag is set, but the action has no version_spans.",
            "Use an engine that reports which weights sampled each token, or leave max_lag out.",
        )
    return rules.policy_version - versions > rules.max_lag


def _token_versions(trajectory: Trajectory, step: Step) -> NDArray[np.int32]:
    spans = step.action.version_spans
    if not spans:
        return np.full(len(step.action), CONTEXT, dtype=np.int32)
    versions = np.repeat(
        np.asarray([span.version for span in spans], dtype=np.int32), [span.n_tokens for span in spans]
    )
    if len(versions) != len(step.action):
        raise DataError(
            f"Trajectory '{trajectory.id}', step {step.index}: the version_spans cover {len(versions)} tokens, "
            f"but {len(step.action)} were sampled.",
            "The engine must report spans that add up to the sampled tokens.",
        )
    return versions
