"""Estimators that keep the laws, with and without a critic, and one for each rule that breaks it."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pytest

from agentr1_core.credit import ESTIMATORS, GRPO, Credit, DrGRPO, Estimator
from agentr1_core.plugins import PluginManager
from agentr1_core.testing.estimator_kit import EstimatorKit
from agentr1_core.testing.rules import rules_of

BUILT_IN = [name for name in PluginManager.discover().names("estimator") if name in ESTIMATORS]


def kit_of(estimator):
    class Kit(EstimatorKit):
        def make_estimator(self, **settings):
            return estimator(settings)

    return Kit


@pytest.mark.parametrize("rule", sorted(rules_of(EstimatorKit)))
@pytest.mark.parametrize("name", BUILT_IN)
def test_estimators_of_the_core_keep_the_laws(run_rule, name, rule):
    run_rule(kit_of(ESTIMATORS[name]), rule)


class StepTD(Estimator):
    """``r_t + V(next) - V(now)``, where the task ended without V(next): the simplest estimator with a critic."""

    name = "step_td"
    needs_values: ClassVar[bool] = True

    def estimate(self, batch):
        rewards = np.where(np.isnan(batch.reward), 0.0, batch.reward)
        ahead = np.where(batch.terminated, 0.0, batch.next_values)
        found = np.where(batch.scorable[batch.trajectory], rewards + ahead - batch.step_values, 0.0)
        return Credit(batch.steps_to_tokens(found), returns=batch.steps_to_tokens(found + batch.step_values))


class TestEstimatorWithACriticKeepsTheLaws(kit_of(StepTD)):
    pass


class OnePerStep(GRPO):
    def estimate(self, batch):
        return Credit(super().estimate(batch).advantages[: batch.n_steps])


class NoGuard(GRPO):
    """The textbook formula: a group of one divides by zero."""

    def estimate(self, batch):
        returns = batch.trajectory_returns()
        found = np.zeros(batch.n_trajectories)
        for g in range(batch.n_groups):
            own = returns[batch.group == g]
            with np.errstate(all="ignore"):
                found[batch.group == g] = (own - own.mean()) / own.std()
        return Credit(batch.trajectories_to_tokens(found))


class NeedsTokens(GRPO):
    def estimate(self, batch):
        credit = super().estimate(batch)
        with np.errstate(all="ignore"):
            return replace(credit, advantages=credit.advantages / credit.advantages.max(initial=-np.inf))


class EmptyBatchBreaksIt(GRPO):
    def estimate(self, batch):
        if batch.reward.min() < -1e300:
            raise ValueError("out of range")
        return super().estimate(batch)


class FirstIsTheBaseline(GRPO):
    """Order matters: the first trajectory of a group is what the others are compared with."""

    def estimate(self, batch):
        returns = batch.trajectory_returns()
        first = {}
        for index, group in enumerate(batch.group):
            first.setdefault(group, returns[index])
        return Credit(batch.trajectories_to_tokens(returns - [first[group] for group in batch.group]))


class NeighboursAreAGroup(GRPO):
    """Takes trajectories that follow each other for a group, so that one split over ranks is two."""

    def estimate(self, batch):
        returns = batch.trajectory_returns()
        runs = np.concatenate([[0], np.cumsum(np.diff(batch.group) != 0)]) if len(returns) else batch.group
        means = np.bincount(runs, returns) / np.maximum(np.bincount(runs), 1)
        return Credit(batch.trajectories_to_tokens(returns - means[runs]))


class RunningBaseline(GRPO):
    seen = 0.0

    def estimate(self, batch):
        self.seen += float(batch.trajectory_returns().sum()) + 1.0
        return Credit(super().estimate(batch).advantages + self.seen)


class WritesIntoTheBatch(GRPO):
    def estimate(self, batch):
        credit = super().estimate(batch)
        batch.reward[:] = np.nan_to_num(batch.reward) / 2
        return credit


class RawScoreWhenAlone(DrGRPO):
    def estimate(self, batch):
        alone = np.bincount(batch.group, minlength=batch.n_groups)[batch.group] == 1
        raw = np.where(alone, batch.trajectory_returns(), 0.0)
        return Credit(super().estimate(batch).advantages + batch.trajectories_to_tokens(raw))


class SinglePrecision(GRPO):
    """sum(x^2) - n * mean^2 in single precision finds a spread where there is none."""

    def estimate(self, batch):
        returns = batch.trajectory_returns().astype(np.float32)
        found = np.zeros(batch.n_trajectories)
        for g in range(batch.n_groups):
            own = returns[batch.group == g]
            mean = np.float32(sum(own, np.float32(0))) / np.float32(len(own))
            if len(own) > 1:
                found[batch.group == g] = (own - mean) / (own.std() + 1e-6)
        return Credit(batch.trajectories_to_tokens(found))


class UnscoredIsZero(GRPO):
    def estimate(self, batch):
        return super().estimate(replace(batch, reward=np.nan_to_num(batch.reward)))


class MissingIsAPenalty(GRPO):
    def estimate(self, batch):
        scored = batch.scorable[batch.trajectory]
        return super().estimate(replace(batch, reward=np.where(np.isnan(batch.reward) & scored, -1.0, batch.reward)))


class MaskIsNotTold(GRPO):
    def estimate(self, batch):
        return replace(super().estimate(batch), masked=None)


class NoBootstrap(StepTD):
    def estimate(self, batch):
        ended = batch.terminated | batch.truncated
        return super().estimate(replace(batch, terminated=ended))


class TakesAnySetting(GRPO):
    def __init__(self, settings=None):
        super().__init__({name: value for name, value in (settings or {}).items() if name in ("eps", "truncated")})


class CountsNothing(GRPO):
    def estimate(self, batch):
        return replace(super().estimate(batch), counters={"credit/share": float("nan")})


BROKEN = [
    (OnePerStep, "estimator/length", "advantages of shape"),
    (NoGuard, "estimator/finite", "nan"),
    (NeedsTokens, "estimator/finite", "nan"),
    (EmptyBatchBreaksIt, "estimator/empty", "zero-size array"),
    (FirstIsTheBaseline, "estimator/permutation", "trajectory"),
    (NeighboursAreAGroup, "estimator/split-groups", "trajectory"),
    (RunningBaseline, "estimator/pure", "keeps state"),
    (WritesIntoTheBatch, "estimator/pure", "writes into CreditBatch.reward"),
    (RawScoreWhenAlone, "estimator/group-of-one", "compared with nobody"),
    (SinglePrecision, "estimator/zero-variance", "give advantages of up to"),
    (UnscoredIsZero, "estimator/unscorable", ""),
    (MissingIsAPenalty, "estimator/missing-reward", "trajectory"),
    (MaskIsNotTold, "estimator/truncated", "must not be trained"),
    (NoBootstrap, "estimator/truncated", "value after a limit changes nothing"),
    (TakesAnySetting, "estimator/settings", "DID NOT RAISE"),
    (CountsNothing, "estimator/counters", "is nan"),
]


@pytest.mark.parametrize(("estimator", "rule", "why"), BROKEN, ids=[each.__name__ for each, *_ in BROKEN])
def test_a_broken_estimator_fails_its_rule(told, estimator, rule, why):
    assert why in told(kit_of(estimator), rule)


def test_every_rule_of_estimators_has_a_broken_one():
    assert {rule for _, rule, _ in BROKEN} == set(rules_of(EstimatorKit))
