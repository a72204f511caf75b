"""How a round's rows are cut: laws that hold for any number of rows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_backend_openrlhf.row_plan import RowPlan

sizes = st.integers(1, 8)


@given(n=st.integers(1, 200), steps=sizes, ranks=sizes, train=sizes, forward=sizes)
@settings(deadline=None)
def test_every_rank_step_and_micro_batch_is_full(n: int, steps: int, ranks: int, train: int, forward: int) -> None:
    plan = RowPlan.of(n, optimizer_steps=steps, n_ranks=ranks, train_micro_batch=train, forward_micro_batch=forward)

    per_rank, rest = divmod(plan.total, ranks)
    assert plan.total == n + plan.n_padding
    assert rest == 0
    assert per_rank % forward == 0
    assert per_rank % (train * plan.optimizer_steps) == 0
    assert plan.optimizer_steps <= steps
    if plan.optimizer_steps > 1:
        assert plan.n_padding < plan.total // plan.optimizer_steps, "an optimiser step could have nothing to train"


@given(n=st.integers(1, 60), training=st.integers(1, 60), steps=sizes, ranks=sizes, train=sizes)
@settings(deadline=None)
def test_rows_that_turn_out_not_to_train_leave_no_step_empty(
    n: int, training: int, steps: int, ranks: int, train: int
) -> None:
    training = min(training, n)
    plan = RowPlan.of(n, optimizer_steps=steps, n_ranks=ranks, train_micro_batch=train, forward_micro_batch=1)
    fewer = plan.with_training(training)

    assert fewer.total == plan.total
    assert plan.total // ranks % (train * fewer.optimizer_steps) == 0
    assert fewer.optimizer_steps == 1 or plan.total - training < plan.total // fewer.optimizer_steps


@given(lengths=st.lists(st.integers(1, 100), min_size=1, max_size=40), ranks=sizes)
@settings(deadline=None)
def test_dealing_is_a_permutation_that_balances_tokens(lengths: list[int], ranks: int) -> None:
    plan = RowPlan.of(len(lengths), optimizer_steps=1, n_ranks=ranks, train_micro_batch=1, forward_micro_batch=1)
    lengths = lengths + [1] * plan.n_padding
    order = plan.deal(lengths)

    assert sorted(order) == list(range(plan.total))
    part = plan.total // ranks
    loads = [sum(lengths[row] for row in order[rank * part : (rank + 1) * part]) for rank in range(ranks)]
    assert max(loads) - min(loads) <= max(lengths), "no rank has more than one row too many"


def test_the_number_of_steps_follows_the_samples_and_not_the_rows() -> None:
    def steps(n_rows: int) -> int:
        plan = RowPlan.of(n_rows, optimizer_steps=2, n_ranks=2, train_micro_batch=2, forward_micro_batch=4)
        return plan.optimizer_steps

    assert [steps(n) for n in (16, 17, 48, 100)] == [2, 2, 2, 2]


def test_a_round_without_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one row"):
        RowPlan.of(0, optimizer_steps=1, n_ranks=1, train_micro_batch=1, forward_micro_batch=1)
