"""Aggregation on the worked example: token losses 1, 4, 9, 2 in the trajectories A, B, C, D."""

import numpy as np
import pytest

from agentr1_core.credit import Credit
from agentr1_core.errors import ConfigError
from agentr1_core.rows import RowBatch, Totals, make_rows, token_weights

LOSS = {"A": 1.0, "B": 4.0, "C": 9.0, "D": 2.0}
N_TOKENS = {"A": [2, 3, 1], "B": [1, 2], "C": [2], "D": [1]}


@pytest.fixture
def group(make_step, make_trajectory, make_group):
    """Append-only trajectories with one environment token (90) between two steps."""

    def trajectory(name, lengths):
        steps, prompt = [], [1, 2]
        for index, n in enumerate(lengths):
            action = [10 * index + j for j in range(n)]
            steps.append(make_step(index, prompt, action))
            prompt = [*prompt, *action, 90]
        return make_trajectory(name, *steps)

    return make_group(*(trajectory(name, lengths) for name, lengths in N_TOKENS.items()))


def total(batch, weights):
    return sum(w.sum() * LOSS[row.trajectory_id] for row, w in zip(batch.rows, weights, strict=True))


@pytest.mark.parametrize("merge", ["none", "linear"])
@pytest.mark.parametrize(
    ("mode", "constant", "expected"),
    [
        ("token-mean", None, 3.166667),
        ("traj-mean-token-mean", None, 4.0),
        ("traj-mean-token-sum", None, 9.5),  # (6*1 + 3*4 + 2*9 + 1*2) / 4
        ("dr-grpo", 100, 0.095),
        ("step-mean", None, 22 / 7),  # (3*1 + 2*4 + 9 + 2) / 7
        ("traj-mean-step-mean-token-sum", None, 7.0),
    ],
)
def test_worked_aggregations(group, merge, mode, constant, expected):
    batch = make_rows([group], Credit(advantages=np.ones(12)), merge=merge)
    assert len(batch.rows) == (4 if merge == "linear" else 7)
    assert total(batch, token_weights(batch, mode, constant)) == pytest.approx(expected, abs=5e-7)


def test_masked_and_environment_tokens_weigh_nothing(group):
    credit = Credit(advantages=np.ones(12), masked=np.arange(12) < 3)
    batch = make_rows([group], credit, merge="linear")
    weights = token_weights(batch, "token-mean")
    assert batch.rows[0].step_indices == (1, 2)
    for row, w in zip(batch.rows, weights, strict=True):
        assert not w[~row.mask].any()
        np.testing.assert_allclose(w[row.mask], 1 / 9)


@pytest.mark.parametrize("mode", ["token-mean", "traj-mean-token-mean", "step-mean", "traj-mean-step-mean-token-sum"])
def test_ranks_share_denominators(group, mode):
    credit = Credit(advantages=np.ones(12))
    whole = make_rows([group], credit)
    expected = total(whole, token_weights(whole, mode))
    parts = [rows_of(whole, {"A", "D"}), rows_of(whole, {"B", "C"})]
    totals = Totals.of(parts[0]) + Totals.of(parts[1])
    assert totals == Totals.of(whole) == Totals(trajectories=4, steps=7, tokens=12)
    assert sum(total(p, token_weights(p, mode, totals=totals)) for p in parts) == pytest.approx(expected)


def rows_of(batch, names):
    rows = tuple(row for row in batch.rows if row.trajectory_id in names)
    return RowBatch(rows, batch.ledger, n_trajectories=len(names), n_steps=len(rows), merged_steps=0)


def test_wrong_modes(group):
    batch = make_rows([group], Credit(advantages=np.ones(12)))
    with pytest.raises(ConfigError, match="'row-mean'"):
        token_weights(batch, "row-mean")
    for mode, constant in (("dr-grpo", None), ("dr-grpo", 0.0), ("token-mean", 5.0)):
        with pytest.raises(ConfigError, match="constant"):
            token_weights(batch, mode, constant)


def test_an_empty_batch_has_no_weights(make_group):
    assert token_weights(make_rows([make_group()], Credit(advantages=np.zeros(0))), "token-mean") == []
