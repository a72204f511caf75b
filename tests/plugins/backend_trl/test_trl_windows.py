"""Which trajectories train in which step, and how rows are cut: pure functions."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentr1_backend_trl.windows import cut_into_chunks, deal_pieces, deal_trajectories, plan_schedule
from agentr1_core.errors import ConfigError


def test_schedules_of_trl():
    assert plan_schedule(4, 4).n_windows == 1
    assert plan_schedule(8, 2).n_windows == 4
    assert plan_schedule(8, 2).parts_per_window == 2
    assert plan_schedule(2, 4).shared
    with pytest.raises(ConfigError, match="do not divide"):
        plan_schedule(3, 2)


@given(n=st.integers(0, 60), windows=st.integers(1, 8), seed=st.integers(0, 9))
def test_trajectories_are_dealt_evenly_and_repeatably(n, windows, seed):
    dealt = deal_trajectories(n, windows, (seed, 1))
    counts = np.bincount(dealt, minlength=windows)
    assert counts.sum() == n
    assert counts.max() - counts.min() <= 1
    assert np.array_equal(dealt, deal_trajectories(n, windows, (seed, 1)))


@given(
    lengths=st.lists(st.integers(1, 99), max_size=40),
    more=st.integers(0, 10),
    parts=st.integers(1, 5),
    rows_per_forward=st.integers(1, 9),
)
def test_every_row_is_cut_once_and_every_rank_cuts_alike(lengths, more, parts, rows_per_forward):
    most = len(lengths) + more  # the rank with most rows
    cut = cut_into_chunks(lengths, most, parts, rows_per_forward)
    longest = cut_into_chunks([1] * most, most, parts, rows_per_forward)
    assert [[len(chunk) for chunk in part] for part in cut] == [[len(chunk) for chunk in part] for part in longest]
    rows = [row for part in cut for chunk in part for row in chunk if row is not None]
    assert sorted(rows) == list(range(len(lengths)))
    assert [lengths[row] for row in rows] == sorted(lengths, reverse=True)
    assert all(chunk and len(chunk) <= rows_per_forward for part in cut for chunk in part)


def test_a_step_without_rows_still_has_a_forward():
    assert cut_into_chunks([], 0, 2, 4) == [[[None]], [[None]]]


@given(
    pieces=st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=5), max_size=6),
    other=st.lists(st.integers(1, 7), max_size=8),
    parts=st.integers(1, 4),
)
def test_trees_are_dealt_once_and_alike_on_every_rank(pieces, other, parts):
    everywhere = [[len(piece) for piece in pieces], other]
    dealt = deal_pieces(pieces, everywhere, parts)
    elsewhere = deal_pieces([[0] * n for n in other], everywhere, parts)
    assert [[len(chunk) for chunk in part] for part in dealt] == [[len(chunk) for chunk in part] for part in elsewhere]
    rows = [[row for row in chunk if row is not None] for part in dealt for chunk in part]
    assert [found for found in rows if found] == pieces
    assert all(chunk for part in dealt for chunk in part)
