"""Trajectories to rows, by example."""

import dataclasses

import numpy as np
import pytest

from agentr1_core.credit import ESTIMATORS, Credit, CreditBatch
from agentr1_core.errors import ConfigError, DataError
from agentr1_core.mdp import StopReason
from agentr1_core.rows import Ledger, make_rows


def counted_credit(*groups, **fields):
    """Advantages 1, 2, 3, ... so that each token can be told by its own."""
    n = CreditBatch.from_groups(groups).total_tokens
    return Credit(advantages=np.arange(1.0, n + 1), **fields)


@pytest.fixture
def continued(make_step, make_trajectory, make_group):
    """Two steps, the second continuing the first with the tool's answer (tokens 50, 51)."""
    return make_group(
        make_trajectory(
            "A",
            make_step(0, [1, 2, 3], [10, 11], versions=[4, 4]),
            make_step(1, [1, 2, 3, 10, 11, 50, 51], [12, 13, 14], reward=1.0, versions=[4, 5, 5]),
        )
    )


def test_separate_rows(continued):
    batch = make_rows([continued], counted_credit(continued))
    first, second = batch.rows
    assert first.prompt_ids.tolist() == [1, 2, 3]
    assert first.completion_ids.tolist() == [10, 11]
    assert second.prompt_ids.tolist() == [1, 2, 3, 10, 11, 50, 51]
    assert second.completion_ids.tolist() == [12, 13, 14]
    assert second.advantages.tolist() == [3, 4, 5]
    assert second.span_ids.tolist() == [1, 1, 1]
    assert second.versions.tolist() == [4, 5, 5]
    assert first.mask.all()
    assert second.mask.all()
    assert (batch.n_trajectories, batch.n_steps, batch.merged_steps, batch.share_merged) == (1, 2, 0, 0.0)


def test_linear_merge_masks_what_the_environment_wrote(continued):
    batch = make_rows([continued], counted_credit(continued), merge="linear")
    (row,) = batch.rows
    assert row.prompt_ids.tolist() == [1, 2, 3]
    assert row.completion_ids.tolist() == [10, 11, 50, 51, 12, 13, 14]
    assert row.mask.tolist() == [True, True, False, False, True, True, True]
    np.testing.assert_allclose(row.logprobs, [-0.1, -0.2, 0, 0, -0.1, -0.2, -0.3], rtol=1e-6)
    assert row.advantages.tolist() == [1, 2, 0, 0, 3, 4, 5]
    assert row.span_ids.tolist() == [0, 0, -1, -1, 1, 1, 1]
    assert row.versions.tolist() == [4, 4, -1, -1, 4, 5, 5]
    assert row.step_indices == (0, 1)
    assert row.returns is None
    assert (row.trajectory_id, row.group_id, len(row), row.n_trained) == ("A", "g", 10, 5)
    assert (batch.n_steps, batch.merged_steps, batch.share_merged) == (2, 1, 0.5)
    types = [a.dtype.name for a in (row.prompt_ids, row.completion_ids, row.mask, row.logprobs, row.advantages)]
    assert types == ["int32", "int32", "bool", "float32", "float32"]
    assert (row.span_ids.dtype, row.versions.dtype) == (np.int32, np.int32)


def test_value_targets_travel_with_their_tokens(continued):
    credit = counted_credit(continued, returns=np.array([0.1, 0.2, 0.3, 0.4, 0.5]))
    (row,) = make_rows([continued], credit, merge="linear").rows
    np.testing.assert_allclose(row.returns, [0.1, 0.2, 0, 0, 0.3, 0.4, 0.5], rtol=1e-6)


def test_a_rewritten_context_opens_a_new_row(make_step, make_trajectory, make_group):
    group = make_group(
        make_trajectory(
            "A",
            make_step(0, [1, 2, 3], [10, 11]),
            make_step(1, [1, 2, 3, 10, 99, 50], [12]),  # looks alike, but the second sampled token is another one
            make_step(2, [1, 2, 3, 10, 99, 50, 12], [13], reward=1.0),
        )
    )
    batch = make_rows([group], counted_credit(group), merge="linear")
    assert [row.step_indices for row in batch.rows] == [(0,), (1, 2)]
    assert batch.rows[1].completion_ids.tolist() == [12, 13]


def test_a_changed_token_anywhere_before_the_action_opens_a_new_row(make_step, make_trajectory, make_group):
    steps = make_step(0, [1, 2, 3], [10]), make_step(1, [1, 9, 3, 10, 50], [12]), make_step(2, [3, 10], [13])
    group = make_group(make_trajectory("A", *steps))
    batch = make_rows([group], counted_credit(group), merge="linear")
    assert [row.prompt_ids.tolist() for row in batch.rows] == [[1, 2, 3], [1, 9, 3, 10, 50], [3, 10]]


def test_the_continued_flag_is_not_trusted(continued):
    (trajectory,) = continued.trajectories
    steps = tuple(
        dataclasses.replace(
            step,
            continued=True,
            observation=dataclasses.replace(step.observation, prompt_ids=step.prompt_ids + np.int32(step.index)),
        )
        for step in trajectory.steps
    )
    group = dataclasses.replace(continued, trajectories=(dataclasses.replace(trajectory, steps=steps),))
    assert len(make_rows([group], counted_credit(group), merge="linear").rows) == 2


def test_steps_sampled_differently_are_not_merged(make_step, make_trajectory, make_group):
    def group(second):
        first = {"temperature": 1.0, "seed": 1}
        return make_group(
            make_trajectory("A", make_step(0, [1], [2], sampling=first), make_step(1, [1, 2, 3], [4], sampling=second))
        )

    for second, n_rows in (({"temperature": 1.0, "seed": 2}, 1), ({"temperature": 0.7, "seed": 1}, 2)):
        made = group(second)
        batch = make_rows([made], counted_credit(made), merge="linear")
        assert len(batch.rows) == n_rows
        assert batch.rows[-1].sampling["temperature"] == (1.0 if n_rows == 1 else 0.7)


def test_an_empty_action_yields_no_row(make_step, make_trajectory, make_group):
    group = make_group(
        make_trajectory("A", make_step(0, [1], [2]), make_step(1, [1, 2], []), make_step(2, [1, 2], [3]))
    )
    for merge, expected in (("none", [(0,), (2,)]), ("linear", [(0, 2)])):
        batch = make_rows([group], counted_credit(group), merge=merge)
        assert [row.step_indices for row in batch.rows] == expected


def test_a_step_that_is_too_long_is_dropped_whole(continued):
    for merge in ("none", "linear"):
        batch = make_rows([continued], counted_credit(continued), merge=merge, max_length=9)
        assert [row.step_indices for row in batch.rows] == [(0,)]
        assert batch.ledger == Ledger(sampled=5, trained=2, dropped={"too_long": 3})
        assert len(make_rows([continued], counted_credit(continued), merge=merge, max_length=10).rows) == (
            1 if merge == "linear" else 2
        )


def test_stale_tokens_are_masked_one_by_one(continued):
    batch = make_rows([continued], counted_credit(continued), merge="linear", policy_version=6, max_lag=1)
    (row,) = batch.rows
    # The first step is stale throughout: it is only context, and so is the first token of the second.
    assert row.prompt_ids.tolist() == [1, 2, 3, 10, 11, 50, 51]
    assert row.mask.tolist() == [False, True, True]
    assert row.advantages.tolist() == [0, 4, 5]
    assert row.logprobs[0] == 0
    assert batch.ledger == Ledger(sampled=5, trained=2, masked={"stale": 3})
    fresh = make_rows([continued], counted_credit(continued), policy_version=6, max_lag=2)
    assert fresh.ledger == Ledger(sampled=5, trained=5)


def test_unknown_versions_are_an_error_only_where_they_matter(make_step, make_trajectory, make_group):
    group = make_group(make_trajectory("A", make_step(0, [1], [2, 3], versions=[])))
    (row,) = make_rows([group], counted_credit(group)).rows
    assert row.versions.tolist() == [-1, -1]
    with pytest.raises(DataError, match="'A', step 0"):
        make_rows([group], counted_credit(group), policy_version=1, max_lag=0)
    short = make_group(make_trajectory("A", make_step(0, [1], [2, 3], versions=[5])))
    with pytest.raises(DataError, match="cover 1 tokens"):
        make_rows([short], counted_credit(short))


def test_failed_trajectories_are_counted_by_stop_reason(continued, make_step, make_trajectory):
    failed = (
        make_trajectory("F", make_step(0, [1], [2, 3]), stop_reason=StopReason.ENV_ERROR),
        make_trajectory("G", make_step(3, [1], [2]), stop_reason=StopReason.ABORTED),
        make_trajectory("H", stop_reason=StopReason.ENGINE_ERROR),
    )
    group = dataclasses.replace(continued, failed=failed)
    batch = make_rows([group], counted_credit(group))
    assert batch.n_trajectories == 1
    assert batch.ledger == Ledger(sampled=8, trained=5, dropped={"env_error": 2, "aborted": 1})


def test_unscorable_and_truncated_trajectories_are_masked(make_step, make_trajectory, make_group):
    group = make_group(
        make_trajectory("A", make_step(0, [1], [2, 3], reward=1.0)),
        make_trajectory("B", make_step(0, [1], [4], reward=0.0)),
        make_trajectory("C", make_step(0, [1], [5, 6, 7], reward=None)),
        make_trajectory("D", make_step(0, [1], [8, 9], reward=0.5), stop_reason=StopReason.MAX_STEPS),
    )
    credit = ESTIMATORS["grpo"]({"truncated": "mask"}).estimate(CreditBatch.from_groups([group]))
    batch = make_rows([group], credit)
    assert [row.trajectory_id for row in batch.rows] == ["A", "B"]
    assert batch.ledger == Ledger(sampled=8, trained=3, masked={"unscorable": 3, "truncated": 2})


def test_steps_without_advantage_can_be_dropped(continued):
    credit = Credit(advantages=np.array([0.0, 0, 0, 1, 0]))
    assert make_rows([continued], credit).ledger == Ledger(sampled=5, trained=5)
    for merge in ("none", "linear"):
        batch = make_rows([continued], credit, merge=merge, zero_advantage="drop")
        assert [row.step_indices for row in batch.rows] == [(1,)]
        assert batch.ledger == Ledger(sampled=5, trained=3, dropped={"zero_advantage": 2})


def test_a_token_without_a_finite_logprob_is_masked(make_step, make_trajectory, make_group):
    group = make_group(make_trajectory("A", make_step(0, [1], [2, 3, 4], logprobs=[-1, np.nan, -np.inf])))
    batch = make_rows([group], counted_credit(group))
    assert batch.rows[0].logprobs.tolist() == [-1, 0, 0]
    assert batch.ledger == Ledger(sampled=3, trained=1, masked={"no_logprob": 2})


def test_nothing_to_train(make_group):
    batch = make_rows([make_group()], Credit(advantages=np.zeros(0)))
    assert batch.rows == ()
    assert batch.share_merged == 0
    assert batch.ledger == Ledger()


def test_wrong_arguments(continued):
    with pytest.raises(ValueError, match="covers 4 tokens"):
        make_rows([continued], Credit(advantages=np.zeros(4)))
    for wrong in ({"max_length": 0}, {"max_lag": 1}, {"max_lag": -1, "policy_version": 1}):
        with pytest.raises(ConfigError):
            make_rows([continued], counted_credit(continued), **wrong)


def test_ledgers_add_up():
    left = Ledger(sampled=5, trained=2, masked={"stale": 3})
    right = Ledger(sampled=7, trained=1, masked={"stale": 1, "truncated": 2}, dropped={"aborted": 3})
    both = left + right
    assert both.balances
    assert both.as_dict() == {
        "sampled": 12,
        "trained": 3,
        "masked": 6,
        "dropped": 3,
        "masked/stale": 4,
        "masked/truncated": 2,
        "dropped/aborted": 3,
    }
    assert not Ledger(sampled=2, trained=1).balances
