"""What every credit estimator must do. Subclass ``EstimatorKit`` and say how to make the estimator.

The laws are checked on batches that hypothesis draws, with a critic's values where the estimator needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from agentr1_core.credit import Credit, CreditBatch, Estimator
from agentr1_core.errors import ConfigError
from agentr1_core.mdp import Group
from agentr1_core.testing.credit_cases import CASES, Case, Steps, batch_of, groups_of
from agentr1_core.testing.rules import rule

#: Advantages of each trajectory's tokens, by group and trajectory.
ByTrajectory = dict[tuple[str, str], NDArray[Any]]

_law = settings(max_examples=40, deadline=None, database=None, derandomize=True)
#: Rewards that all trajectories of a group share; sums of them are not exact in floating point.
EQUAL_REWARDS = (1000.1, 0.1, 0.0, -1e9 / 3)
TELLING: Case = {"g": {"A": [(1.0, 2)], "B": [(0.0, 1)], "C": [(0.25, 1), (0.5, 2)]}}


class EstimatorKit:
    """Checks of the ``Estimator`` contract. Override ``make_estimator``."""

    #: How far two ways to the same number may be apart.
    atol = 1e-9

    def make_estimator(self, **settings: Any) -> Estimator:
        """The estimator with these settings over your own; the kit sets only ``truncated``, and a wrong one."""
        raise NotImplementedError("Override make_estimator() in your test class.")

    def batch(self, groups: Sequence[Group], *, after_limit: float | None = None) -> CreditBatch:
        """The groups with what the estimator says that it needs: a critic's values, a teacher's log-probs."""
        estimator = self.make_estimator()
        return batch_of(groups, values=estimator.needs_values, teacher=self._has_teacher, after_limit=after_limit)

    @rule("estimator/length")
    def test_one_finite_advantage_for_each_token(self) -> None:
        @_law
        @given(case=CASES)
        def law(case: Case) -> None:
            batch = self.batch(groups_of(case))
            _check_lengths(self._estimate(batch), batch)

        law()

    @rule("estimator/finite")
    @pytest.mark.parametrize("reward", [0.0, 1e-300, 1e9, -1e9 / 3])
    def test_advantages_are_finite_where_there_is_little_to_say(self, reward: float) -> None:
        cases: list[Case] = [
            {"g": {"A": [(reward, 1)]}},
            {"g": {"A": [(reward, 0)], "B": [(-reward, 0)]}},
            {"g": {"A": [(None, 2)], "B": [(None, 1)]}},
            {"g": {"A": [(reward, 2)], "B": [(reward, 3)]}},
            {"g": {"A": [(reward, 1), (None, 0), (-reward, 2)]}, "h": {"A": [(None, 1)]}},
        ]
        for case in cases:
            found = self._estimate(self.batch(groups_of(case)))
            assert np.all(np.isfinite(found.advantages)), f"{case}: {found.advantages}"
            assert found.returns is None or np.all(np.isfinite(found.returns)), f"{case}: returns {found.returns}"

    @rule("estimator/empty")
    def test_a_batch_of_nothing(self) -> None:
        assert self._estimate(self.batch([])).advantages.shape == (0,), "no tokens, no advantages"

    @rule("estimator/permutation")
    def test_the_order_of_trajectories_and_groups_does_not_matter(self) -> None:
        @_law
        @given(case=CASES, data=st.data())
        def law(case: Case, data: st.DataObject) -> None:
            groups = groups_of(case)
            shuffled = [
                replace(group, trajectories=tuple(data.draw(st.permutations(group.trajectories))))
                for group in data.draw(st.permutations(groups))
            ]
            self._same(self._by_trajectory(groups), self._by_trajectory(shuffled))

        law()

    @rule("estimator/split-groups")
    def test_a_group_split_over_ranks_is_whole_again(self) -> None:
        @_law
        @given(case=CASES, data=st.data())
        def law(case: Case, data: st.DataObject) -> None:
            ranks: tuple[list[Group], list[Group]] = ([], [])
            groups = groups_of(case)
            for group in groups:
                cut = data.draw(st.integers(0, len(group.trajectories)))
                ranks[0].append(replace(group, trajectories=group.trajectories[:cut]))
                ranks[1].append(replace(group, trajectories=group.trajectories[cut:]))
            parts = [self.batch(rank) for rank in ranks]
            joined = CreditBatch.concat(parts)
            pieces = joined.split(self._estimate(joined).advantages, np.bincount(joined.trajectory).tolist())
            names = [(group.id, each.id) for rank in ranks for group in rank for each in group.trajectories]
            self._same(dict(zip(names, pieces, strict=True)), self._by_trajectory(groups))

        law()

    @rule("estimator/pure")
    def test_it_keeps_and_changes_nothing(self) -> None:
        estimator, batch = self.make_estimator(), self.batch(groups_of(TELLING))
        before = {field.name: np.array(getattr(batch, field.name)) for field in fields(batch)}
        first = estimator.estimate(batch).advantages.copy()
        for name, value in before.items():
            np.testing.assert_array_equal(value, np.array(getattr(batch, name)), f"it writes into CreditBatch.{name}")
        estimator.estimate(self.batch(groups_of({"other": {"A": [(5.0, 1)], "B": [(-5.0, 2)]}})))
        second = estimator.estimate(batch).advantages
        np.testing.assert_array_equal(first, second, "the same batch twice gives two answers: it keeps state")

    @rule("estimator/group-of-one")
    def test_a_group_of_one_has_nothing_to_compare_with(self) -> None:
        self._skip_unless_it_compares()
        found = self._by_trajectory(groups_of({**TELLING, "h": {"D": [(2.0, 1), (0.5, 2)]}}))["h", "D"]
        assert not found.any(), f"compared with nobody it still has the advantages {found}"

    @rule("estimator/zero-variance")
    @pytest.mark.parametrize("reward", EQUAL_REWARDS)
    def test_equal_returns_give_no_advantage(self, reward: float) -> None:
        self._skip_unless_it_compares()
        for size in (7, 8):
            found = self._estimate(self.batch(groups_of({"g": {str(i): [(reward, 2)] for i in range(size)}})))
            worst = float(np.max(np.abs(found.advantages)))
            assert worst <= 1e-6, f"{size} returns of {reward} give advantages of up to {worst:.3g}"

    @rule("estimator/unscorable")
    def test_a_trajectory_without_reward_is_no_part_of_it(self) -> None:
        without = self._by_trajectory(groups_of(TELLING))
        found = self._by_trajectory(groups_of({"g": {**TELLING["g"], "D": [(None, 2), (None, 1)]}}))
        unscored = found.pop(("g", "D"))
        assert self._has_teacher or not unscored.any(), "a trajectory without any reward has an advantage"
        self._same(found, without)

    @rule("estimator/missing-reward")
    def test_a_missing_reward_counts_as_zero_where_another_exists(self) -> None:
        rest: dict[str, Steps] = {"C": [(0.5, 1)]}
        some = groups_of({"g": {"A": [(None, 2), (1.0, 1)], "B": [(0.0, 1), (None, 1)], **rest}})
        full = groups_of({"g": {"A": [(0.0, 2), (1.0, 1)], "B": [(0.0, 1), (0.0, 1)], **rest}})
        self._same(self._by_trajectory(some), self._by_trajectory(full))

    @rule("estimator/truncated")
    def test_truncated_trajectories_are_treated_as_it_says(self) -> None:
        finished, cut = groups_of(TELLING), groups_of(TELLING, cut_short=[("g", "C")])
        if self.make_estimator().needs_values:
            ended = self._by_trajectory(finished)
            self._same(
                self._by_trajectory(cut, after_limit=0.0), ended
            )  # a value of zero after the limit is a terminal state
            bootstrapped = self._by_trajectory(cut, after_limit=0.75)["g", "C"]
            assert not np.allclose(bootstrapped, ended["g", "C"]), "the value after a limit changes nothing"
            return
        if "truncated" not in self.make_estimator().Settings.model_fields:
            self._same(self._by_trajectory(cut), self._by_trajectory(finished))
            return
        self._same(self._by_trajectory(cut, truncated="return"), self._by_trajectory(finished))
        left_out = self._estimate(self.batch(cut), truncated="mask")
        assert left_out.masked is not None, "with truncated='mask' it says of no token that it must not be trained"
        assert left_out.masked.tolist() == [False] * 3 + [True] * 3, f"it masks {left_out.masked.tolist()}"
        rest = self._by_trajectory(groups_of({"g": {name: TELLING["g"][name] for name in "AB"}}))
        found = self._by_trajectory(cut, truncated="mask")
        assert not found.pop(("g", "C")).any(), "a masked trajectory has an advantage"
        self._same(found, rest)

    @rule("estimator/settings")
    def test_unknown_settings_are_refused(self) -> None:
        with pytest.raises(ConfigError):
            self.make_estimator(no_such_setting=1)

    @rule("estimator/counters")
    def test_counters_are_finite_numbers(self) -> None:
        for name, value in self._estimate(self.batch(groups_of(TELLING))).counters.items():
            assert np.isfinite(value), f"counter '{name}' is {value}"

    @property
    def compares(self) -> bool:
        """Whether the advantages of a group do not depend on the level of its rewards: it has a baseline of its own."""
        pair: Case = {"g": {"A": [(1.0, 2)], "B": [(0.0, 2)], "C": [(0.5, 2)]}, "h": {"A": [(1.0, 2)], "B": [(0.0, 2)]}}
        raised: Case = {**pair, "h": {"A": [(4.0, 2)], "B": [(3.0, 2)]}}
        found, other = self._by_trajectory(groups_of(pair)), self._by_trajectory(groups_of(raised))
        return all(np.allclose(found[name], other[name], atol=1e-6) for name in found)

    @property
    def _has_teacher(self) -> bool:
        """Whether a teacher judges each token, so that there is something to say without any reward."""
        return bool(getattr(self.make_estimator(), "needs_teacher", False))

    def _skip_unless_it_compares(self) -> None:
        if self._has_teacher or not self.compares:
            pytest.skip("the estimator does not compare the trajectories of a group")

    def _estimate(self, batch: CreditBatch, **settings: Any) -> Credit:
        return self.make_estimator(**settings).estimate(batch)

    def _by_trajectory(
        self, groups: Sequence[Group], *, after_limit: float | None = None, **settings: Any
    ) -> ByTrajectory:
        batch = self.batch(groups, after_limit=after_limit)
        pieces = batch.split(self._estimate(batch, **settings).advantages, np.bincount(batch.trajectory).tolist())
        names = [(group.id, each.id) for group in groups for each in group.trajectories]
        return dict(zip(names, pieces, strict=True))

    def _same(self, left: ByTrajectory, right: ByTrajectory) -> None:
        assert left.keys() == right.keys()
        for name in left:
            np.testing.assert_allclose(left[name], right[name], rtol=1e-9, atol=self.atol, err_msg=f"trajectory {name}")


def _check_lengths(credit: Credit, batch: CreditBatch) -> None:
    shape = (batch.total_tokens,)
    assert credit.advantages.shape == shape, f"advantages of shape {credit.advantages.shape} for {shape} tokens"
    assert credit.advantages.dtype.kind == "f", f"advantages are numbers of type {credit.advantages.dtype}"
    assert np.all(np.isfinite(credit.advantages)), f"advantages are not finite: {credit.advantages}"
    assert credit.returns is None or credit.returns.shape == shape, "one value target for each token"
    assert credit.masked is None or credit.masked.dtype == np.bool_, "`masked` is an array of booleans"
