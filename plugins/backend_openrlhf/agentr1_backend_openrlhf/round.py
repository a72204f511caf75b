"""One round of training: the groups that came in, their rows, and what is learned from them.

``Round`` lays the rows out before any model has read them, because a critic or a penalty on the KL divergence must read
them before credit can be assigned; ``assign`` then takes what the models said and gives each row its target. Groups are
compared here, trajectory by trajectory, so that the number of rows of a trajectory changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from agentr1_backend_openrlhf.experiences import ReadOnlyRow, Row, Target
from agentr1_core.credit import Credit, CreditBatch, Estimator, ordered_steps
from agentr1_core.errors import ConfigError, EnvError, RewardError
from agentr1_core.mdp import Group, StopReason, Trajectory, token_array
from agentr1_core.metrics import describe_collection
from agentr1_core.rollout import Collection
from agentr1_core.rows import CONTEXT, Ledger, RowBatch, TrainingRow, make_rows, token_weights

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """What the models said about one row. Arrays are over its completion, ``(C,)``; over its last token for prompts."""

    #: Of the policy before the round.
    logprobs: Floats
    #: The critic's, before each token.
    values: Floats | None = None
    #: Divergence from the reference model, where it is a penalty on the reward.
    kl: Floats | None = None


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a round teaches, and how to describe it."""

    targets: Sequence[Target | None]
    ledger: Ledger
    figures: Mapping[str, float]


@dataclass(slots=True)
class Round:
    """The groups of one round."""

    groups: tuple[Group, ...]
    estimator: Estimator
    merge: Any
    seconds: float = 0.0
    #: Whether a critic is trained.
    has_critic: bool = False
    #: Factor of the divergence from the reference model in the reward.
    kl_in_reward: float = 0.0
    #: How token losses are averaged; anything but ``token-mean`` is folded into the advantages.
    weights: Any = "token-mean"
    #: Seeds the negative control, which hands each trajectory the credit of a random one.
    shuffle: Sequence[int] | None = None
    #: Rows to be read: those that may train, then prompts that only the critic values.
    rows: tuple[Row, ...] = field(init=False)

    def __post_init__(self) -> None:
        usable = [t for group in self.groups for t in group.trajectories]
        if not usable:
            failed = [t for group in self.groups for t in group.failed]
            causes = Counter(t.error or t.stop_reason.value for t in failed).most_common(3)
            told = "; ".join(f"{count} times: {cause}" for cause, count in causes)
            raise EnvError(f"Every episode of the round failed. {told}", "Mend the first cause and run again.")
        layout = make_rows(self.groups, Credit(np.zeros(sum(t.n_sampled for t in usable))), merge=self.merge).rows
        if not layout:
            raise RewardError(
                "No episode of the round has a token to train.",
                "See that the environment or a reward function gives each episode a reward.",
            )
        self.rows = (*layout, *(self._prompts_to_value(layout) if self.has_critic else ()))

    @property
    def n_training_rows(self) -> int:
        """Rows that may train; they come first."""
        return sum(isinstance(row, TrainingRow) for row in self.rows)

    def reward_of(self, row: Row) -> float:
        """Return of the trajectory that a row belongs to; 0 for one that only is read."""
        if not isinstance(row, TrainingRow):
            return 0.0
        return self._returns[row.group_id, row.trajectory_id]

    def assign(self, readings: Sequence[Reading]) -> Lesson:
        """Estimate credit and give each of ``rows`` its target.

        Args:
            readings: One for each of ``rows``.

        Raises:
            ConfigError: The estimator reads values but gives none to learn from.
        """
        penalty = self._kl_of_steps(readings) if self.kl_in_reward else None
        batch = self._credit_batch(readings, penalty)
        credit = self.estimator.estimate(batch)
        if self.has_critic and credit.returns is None:
            raise ConfigError(
                f"Estimator '{self.estimator.name}' reads values but gives no returns, so that the critic learns "
                "nothing.",
                "Fill Credit.returns.",
            )
        if self.shuffle is not None:
            credit = _shuffled(credit, batch, self.shuffle)
        final = make_rows(self.groups, credit, merge=self.merge)
        learned = self._learn(final)
        targets = [None if row is None else self._target(row) for row in learned]
        figures = {
            **describe_collection(Collection(self.groups, self.seconds, _counters(self.groups))),
            **{name: float(value) for name, value in credit.counters.items()},
            **{f"ledger/{name}": float(count) for name, count in final.ledger.as_dict().items()},
            "share_merged": final.share_merged,
            "tokens": float(final.ledger.trained),
            **_engine_gap(learned, readings),
            **self._critic_figures(batch, credit),
        }
        if penalty is not None:
            figures["kl_penalty"] = float(penalty.sum() / max(batch.n_trajectories, 1))
        return Lesson(targets, final.ledger, figures)

    # ------------------------------------------------------------------ credit

    @property
    def _returns(self) -> dict[tuple[str, str], float]:
        return {(group.id, t.id): t.ret for group in self.groups for t in group.trajectories}

    def _steps(self) -> dict[tuple[str, str, int], int]:
        """The number of each step, as ``CreditBatch`` counts."""
        found: dict[tuple[str, str, int], int] = {}
        for group in self.groups:
            for trajectory in group.trajectories:
                for step in ordered_steps(trajectory):
                    found[group.id, trajectory.id, step.index] = len(found)
        return found

    def _kl_of_steps(self, readings: Sequence[Reading]) -> Floats:
        """The penalty of each step, ``(N,)``: the divergence summed over its tokens."""
        numbers = self._steps()
        found = np.zeros(len(numbers))
        for row, reading in zip(self.rows, readings, strict=True):
            if isinstance(row, TrainingRow) and reading.kl is not None:
                for index in row.step_indices:
                    span = row.mask & (row.span_ids == index)
                    found[numbers[row.group_id, row.trajectory_id, index]] = self.kl_in_reward * reading.kl[span].sum()
        return found

    def _credit_batch(self, readings: Sequence[Reading], penalty: Floats | None) -> CreditBatch:
        batch = CreditBatch.from_groups(self.groups)
        if penalty is not None:
            scored = batch.scorable[batch.trajectory]
            batch = replace(batch, reward=np.where(scored, batch.rewards - penalty, batch.reward))
        if not self.has_critic:
            return batch
        numbers = self._steps()
        first = np.cumsum(batch.n_tokens) - batch.n_tokens
        step_values, next_values = np.full((2, batch.n_steps), np.nan)
        token_values = np.full(batch.total_tokens, np.nan)
        for row, reading in zip(self.rows, readings, strict=True):
            if reading.values is None:
                raise ValueError("A round with a critic needs its values of every row.")
            if isinstance(row, ReadOnlyRow):
                if row.step is not None:
                    (next_values if row.is_next else step_values)[row.step] = reading.values[-1]
                continue
            for index in row.step_indices:
                number = numbers[row.group_id, row.trajectory_id, index]
                values = reading.values[row.span_ids == index]
                step_values[number] = values[0]
                token_values[first[number] : first[number] + len(values)] = values
        # Tokens of steps that have no row stand at the value of their prompt.
        token_values = np.where(np.isnan(token_values), batch.steps_to_tokens(step_values), token_values)
        return replace(batch, step_values=step_values, next_values=next_values, token_values=token_values)

    def _prompts_to_value(self, layout: Sequence[TrainingRow]) -> list[ReadOnlyRow]:
        """Prompts of steps without a row, and what would have come after episodes that a limit cut."""
        laid_out = {(row.group_id, row.trajectory_id, index) for row in layout for index in row.step_indices}
        numbers = self._steps()
        found = []
        for group in self.groups:
            for trajectory in group.trajectories:
                steps = ordered_steps(trajectory)
                for step in steps:
                    if (group.id, trajectory.id, step.index) not in laid_out:
                        found.append(ReadOnlyRow(step.prompt_ids, numbers[group.id, trajectory.id, step.index]))
                last = steps[-1]
                cut = last.truncated or trajectory.stop_reason.is_truncation
                after = last.next_observation
                if cut and not last.terminated and after is not None and after.prompt_ids is not None:
                    number = numbers[group.id, trajectory.id, last.index]
                    found.append(ReadOnlyRow(after.prompt_ids, number, is_next=True))
        return found

    # ------------------------------------------------------------------ targets

    def _learn(self, final: RowBatch) -> list[TrainingRow | None]:
        """``rows`` with what ``final`` says of their steps, scaled; ``None`` where nothing trains.

        The rows of ``final`` may be laid out otherwise: a step that the estimator masks throughout has no place there.
        """
        told: dict[tuple[str, str, int], tuple[Any, Any, Any]] = {}
        for row, scale in zip(final.rows, self._scale(final), strict=True):
            advantages = row.advantages * scale
            for index in row.step_indices:
                span = row.span_ids == index
                returns = 0.0 if row.returns is None else row.returns[span]
                told[row.group_id, row.trajectory_id, index] = row.mask[span], advantages[span], returns
        has_returns = any(row.returns is not None for row in final.rows)

        def learned(row: TrainingRow) -> TrainingRow | None:
            mask = np.zeros(len(row.mask), dtype=np.bool_)
            advantages, returns = np.zeros((2, len(row.mask)))
            found = tuple(n for n in row.step_indices if (row.group_id, row.trajectory_id, n) in told)
            for index in found:
                span = row.span_ids == index
                mask[span], advantages[span], returns[span] = told[row.group_id, row.trajectory_id, index]
            if not found:
                return None
            given = returns if has_returns else None
            return replace(row, mask=mask, advantages=advantages, returns=given, step_indices=found)

        return [learned(row) if isinstance(row, TrainingRow) else None for row in self.rows]

    def _scale(self, final: RowBatch) -> list[Any]:
        """What each row's advantages are multiplied by, so that a mean over tokens becomes the wanted average."""
        if self.weights == "token-mean":
            return [1.0] * len(final.rows)
        n_tokens = sum(row.n_trained for row in final.rows)
        return [weights * n_tokens for weights in token_weights(final, self.weights)]

    def _target(self, row: TrainingRow) -> Target:
        value_mask = None
        if self.has_critic and self.estimator.value_unit == "step":
            # One value a step, before its first token.
            before = np.concatenate([[CONTEXT], row.span_ids[:-1]])
            first = (row.span_ids != CONTEXT) & (row.span_ids != before)
            value_mask = first & np.isin(row.span_ids, np.unique(row.span_ids[row.mask]))
        returns = row.returns if value_mask is None else _spread(row)
        return Target(row.mask, row.advantages, returns, value_mask)

    def _critic_figures(self, batch: CreditBatch, credit: Credit) -> dict[str, float]:
        if not self.has_critic or credit.returns is None:
            return {}
        by_step = self.estimator.value_unit == "step"
        values = batch.steps_to_tokens(batch.step_values) if by_step else batch.token_values
        kept = batch.trajectories_to_tokens(batch.scorable)
        if by_step:
            first = np.zeros(batch.total_tokens, dtype=np.bool_)
            first[(np.cumsum(batch.n_tokens) - batch.n_tokens)[batch.n_tokens > 0]] = True
            kept = kept & first
        if credit.masked is not None:
            kept = kept & ~credit.masked
        known, returns = np.asarray(values)[kept], credit.returns[kept]
        spread = float(returns.var()) if len(returns) else 0.0
        return {
            "critic/explained_variance": 1.0 - float((returns - known).var()) / spread if spread > 1e-12 else 0.0,
            "critic/value": float(known.mean()) if len(known) else 0.0,
            "critic/return": float(returns.mean()) if len(returns) else 0.0,
        }


def group_trajectories(trajectories: Sequence[Trajectory], least: int) -> tuple[Group, ...]:
    """Groups by name, in the order they come; those with fewer than ``least`` usable trajectories fail whole."""
    members: dict[str, list[Trajectory]] = {}
    for trajectory in trajectories:
        members.setdefault(trajectory.group_id, []).append(trajectory)
    return tuple(_group(name, played, min(least, len(played))) for name, played in members.items())


def _group(name: str, played: Sequence[Trajectory], least: int) -> Group:
    usable = tuple(t for t in played if not t.stop_reason.is_failure and t.steps)
    failed = tuple(t for t in played if t.stop_reason.is_failure or not t.steps)
    if len(usable) < least:
        why = f"left out: only {len(usable)} of the group's {len(played)} episodes are usable, {least} are needed"
        failed += tuple(replace(t, stop_reason=StopReason.ABORTED, error=why) for t in usable)
        usable = ()
    return Group(name, played[0].task, usable, failed)


def padding_row() -> ReadOnlyRow:
    """A row that only fills a place."""
    return ReadOnlyRow(token_array([0]))


def _spread(row: TrainingRow) -> Floats | None:
    """Each step's return at all its tokens: its first one may be masked, and the critic learns there."""
    if row.returns is None:
        return None
    found = np.zeros(len(row.returns))
    for index in row.step_indices:
        span = row.span_ids == index
        found[span] = row.returns[span & row.mask].mean()
    return found


def _counters(groups: Sequence[Group]) -> dict[str, float]:
    total: Counter[str] = Counter()
    for group in groups:
        for trajectory in (*group.trajectories, *group.failed):
            total.update(trajectory.counters)
            total[f"stop/{trajectory.stop_reason.value}"] += 1
    return dict(total)


def _engine_gap(rows: Sequence[TrainingRow | None], readings: Sequence[Reading]) -> dict[str, float]:
    """Engine against trainer log-probs of the trained tokens; and the k3 estimate of the divergence between them."""
    apart = [np.zeros(0)]
    for row, reading in zip(rows, readings, strict=True):
        if row is not None:
            apart.append((reading.logprobs - row.logprobs)[row.mask])
    gap = np.concatenate(apart)
    if not len(gap):
        return {"logprob_gap": 0.0, "logprob_gap_max": 0.0, "kl": 0.0}
    moved = np.minimum(gap, 60.0)
    return {
        "logprob_gap": float(np.abs(gap).mean()),
        "logprob_gap_max": float(np.abs(gap).max()),
        "kl": float((np.expm1(moved) - moved).mean()),
    }


def _shuffled(credit: Credit, batch: CreditBatch, seed: Sequence[int]) -> Credit:
    """Every trajectory gets the mean advantage of another one, at random: what is left teaches nothing."""
    owner = batch.trajectories_to_tokens(np.arange(batch.n_trajectories))
    tokens = np.bincount(owner, minlength=batch.n_trajectories)
    means = np.bincount(owner, credit.advantages, batch.n_trajectories) / np.maximum(tokens, 1)
    order = np.random.default_rng(list(seed)).permutation(batch.n_trajectories)
    return replace(credit, advantages=means[order][owner])
