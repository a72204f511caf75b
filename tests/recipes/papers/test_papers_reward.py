"""What calls are worth, the metrics, and the pool: laws and worked examples."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_recipes.papers.corpus import Paper
from agentr1_recipes.papers.pool import Pool
from agentr1_recipes.papers.reward import COST, PENALTY, RELEVANT, TOP, CallOutcome, call_reward, retrieval_metrics

SCORES = st.lists(st.floats(0, 1), max_size=12)
TOOLS = st.sampled_from(["search", "expand"])


@pytest.mark.parametrize(
    ("tool", "outcome", "scores", "expected"),
    [
        ("search", CallOutcome.NEW, [0.9, 0.4, 0.39, 0.8, 0.7], 2.9),  # the three best count, all are relevant
        ("search", CallOutcome.NEW, [0.39, 0.4], 0.9),
        ("search", CallOutcome.NEW, [0.0], -0.1),
        ("expand", CallOutcome.NEW, [1.0], 0.95),
        ("expand", CallOutcome.NOTHING_NEW, [], 0.0),
        ("search", CallOutcome.REPEATED, [], -0.5),
        ("expand", CallOutcome.UNKNOWN, [], -0.5),
        ("cite", CallOutcome.INVALID, [], -0.5),
        ("search", CallOutcome.LEFT_OUT, [], 0.0),
    ],
)
def test_worked_examples(tool, outcome, scores, expected):
    assert call_reward(tool, outcome, scores) == pytest.approx(expected)


@settings(deadline=None)
@given(TOOLS, SCORES, st.randoms())
def test_the_reward_of_new_papers(tool, scores, rng):
    reward = call_reward(tool, CallOutcome.NEW, scores)
    assert PENALTY < -COST[tool] <= reward <= TOP - COST[tool]
    assert reward == call_reward(tool, CallOutcome.NEW, rng.sample(scores, len(scores)))
    assert reward == pytest.approx(min(TOP, sum(score >= RELEVANT for score in scores)) - COST[tool])


@settings(deadline=None)
@given(st.lists(st.integers(0, 200), unique=True), st.sets(st.integers(0, 200), min_size=1))
def test_the_metrics(ranked, answers):
    found = retrieval_metrics([str(each) for each in ranked], {str(each) for each in answers})
    hits = len(answers.intersection(ranked))
    assert found["recall"] == hits / len(answers)
    assert found["precision"] * len(ranked) == pytest.approx(hits)
    assert 0 <= found["recall@20"] <= found["recall@50"] <= found["recall@100"] <= found["recall"] <= 1


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), max_size=30), st.integers(2, 20))
def test_the_halves_of_the_pool(papers, size):
    pool = Pool()
    for number, (score, expanded) in enumerate(papers):
        pool.add(Paper(str(number), ""), score)
        pool.get(str(number)).expanded = expanded
    fresh, done = pool.halves(size)
    assert len(fresh) + len(done) == min(size, len(papers))
    for half, expanded in ((fresh, False), (done, True)):
        all_of_them = [found for found in pool.ranked() if found.expanded is expanded]
        assert half == all_of_them[: len(half)]
        assert len(half) >= min(size // 2, len(all_of_them))
