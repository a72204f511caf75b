"""The token tree: every unique token once, every row a path, by law and by example."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentr1_core.errors import ConfigError
from agentr1_core.rows import TreeCost, build_tree, count_unique, plan_trees

#: Few different tokens, so that rows share prefixes, repeat and contain each other.
ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=8), min_size=1, max_size=12)


def as_rows(lists):
    return [np.asarray(ids, dtype=np.int32) for ids in lists]


def test_two_branches_by_hand():
    tree = build_tree(as_rows([[1, 2, 5, 6], [1, 2, 3], [1, 2, 3, 4]]))
    assert tree.token_ids.tolist() == [1, 2, 3, 4, 5, 6]
    assert tree.depths.tolist() == [0, 1, 2, 3, 2, 3]
    assert tree.parents.tolist() == [-1, 0, 1, 2, 1, 4]  # 5 is predicted at 2, not at its left neighbour 4
    assert tree.subtree_end.tolist() == [6, 6, 4, 4, 6, 6]
    assert [path.tolist() for path in tree.paths] == [[0, 1, 4, 5], [0, 1, 2], [0, 1, 2, 3]]
    assert tree.segment_starts().tolist() == [0, 2, 4]  # a row that ends inside a run does not split it
    assert (len(tree), tree.n_row_tokens) == (6, 11)
    assert tree.attends()[4].tolist() == [True, True, False, False, True, False]


def test_a_token_id_above_two_bytes_keeps_its_order():
    tree = build_tree(as_rows([[70_000], [151_643, 1], [3]]))
    assert tree.token_ids.tolist() == [3, 70_000, 151_643, 1]
    assert tree.parents.tolist() == [-1, -1, -1, 2]


@given(ROWS)
def test_every_row_is_read_back_from_its_path(lists):
    rows = as_rows(lists)
    tree = build_tree(rows)
    for number, row in enumerate(rows):
        assert tree.row_ids(number).tolist() == row.tolist()
        assert tree.depths[tree.paths[number]].tolist() == list(range(len(row)))


@given(ROWS)
def test_every_unique_token_stands_exactly_once(lists):
    prefixes = {tuple(ids[:n]) for ids in lists for n in range(1, len(ids) + 1)}
    tree = build_tree(as_rows(lists))
    assert len(tree) == len(prefixes) == count_unique(as_rows(lists))
    assert tree.n_row_tokens == sum(len(ids) for ids in lists)
    assert set(np.concatenate(tree.paths).tolist()) == set(range(len(tree)))  # and none is of no row


@given(ROWS)
def test_rows_are_root_paths(lists):
    tree = build_tree(as_rows(lists))
    for path in tree.paths:
        assert tree.parents[path].tolist() == [-1, *path[:-1].tolist()]


@given(ROWS)
def test_a_token_sees_exactly_its_ancestors_and_itself(lists):
    tree = build_tree(as_rows(lists))
    seen = tree.attends()
    for position in range(len(tree)):
        ancestors, at = set(), position
        while at != -1:
            ancestors.add(at)
            at = int(tree.parents[at])
        assert set(np.flatnonzero(seen[position]).tolist()) == ancestors


@given(ROWS)
def test_segments_have_no_branch_inside(lists):
    tree = build_tree(as_rows(lists))
    bounds = [*tree.segment_starts().tolist(), len(tree)]
    for start, stop in pairwise(bounds):
        assert tree.parents[start + 1 : stop].tolist() == list(range(start, stop - 1))
        assert all(int(parent) + 1 not in range(start + 1, stop) for parent in tree.parents[stop:])


@given(ROWS, st.integers(8, 30))
def test_trees_hold_every_row_once_and_keep_to_the_limit(lists, limit):
    rows = as_rows(lists)
    trees = plan_trees(rows, limit)
    assert sorted(row for tree in trees for row in tree) == list(range(len(rows)))
    for tree in trees:
        assert len(build_tree([rows[row] for row in tree])) <= limit
    assert len(plan_trees(rows)) == 1


def test_a_full_tree_ends_at_a_row_and_its_context_is_repeated():
    rows = as_rows([[1, 2, 3], [1, 2, 3, 4, 5], [1, 2, 3, 4, 5, 6, 7]])
    assert plan_trees(rows, 7) == [[0, 1, 2]]
    branches = as_rows([[1, 2, 3, 4], [1, 2, 8, 9], [1, 2, 5, 6]])
    assert plan_trees(branches, 6) == [[0, 2], [1]]


def cost_of_plan(rows, trees, cost):
    built = [build_tree([rows[row] for row in tree]) for tree in trees]
    return sum(float(cost.by_mask(len(tree))) for tree in built)


@given(ROWS, st.floats(0, 1), st.floats(0, 20))
def test_no_plan_costs_less_than_the_one_taken(lists, per_pair, per_forward):
    rows, cost = as_rows(lists), TreeCost(per_pair, per_forward, may_cache=False)
    trees = plan_trees(rows, None, cost)
    assert sorted(row for tree in trees for row in tree) == list(range(len(rows)))
    taken = cost_of_plan(rows, trees, cost)
    for limit in (8, 12, 20, None):
        assert taken <= cost_of_plan(rows, plan_trees(rows, limit), cost) + 1e-6
        assert all(
            len(build_tree([rows[row] for row in tree])) <= (limit or 99) for tree in plan_trees(rows, limit, cost)
        )


def test_rows_that_share_little_are_kept_apart():
    rows = as_rows([[1, *range(10, 60)], [1, *range(10, 60), 5], [1, *range(70, 120)], [1, *range(70, 120), 5]])
    assert plan_trees(rows, None, TreeCost(0.1, 1, may_cache=False)) == [[0, 1], [2, 3]]
    assert plan_trees(rows, None, TreeCost(0.0, 1, may_cache=False)) == [[0, 1, 2, 3]]


def test_what_cannot_be_laid_out():
    with pytest.raises(ConfigError, match="A row has 3 tokens, but a tree may have 2"):
        plan_trees(as_rows([[1, 2, 3]]), 2)
    with pytest.raises(ConfigError, match="at least 1"):
        plan_trees([], 0)
    with pytest.raises(ValueError, match="without tokens"):
        build_tree(as_rows([[]]))
    assert plan_trees([]) == []
