"""Laws of rows: merging changes the layout and nothing else, and every sampled token is accounted for."""

from collections import Counter
from typing import get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentr1_core.credit import ESTIMATORS, Credit, CreditBatch
from agentr1_core.mdp import StopReason
from agentr1_core.rows import WeightMode, make_rows, token_weights

law = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
#: Few different tokens, so that prefixes agree by accident too.
TOKENS = st.lists(st.integers(0, 2), max_size=3)
STEP = st.fixed_dictionaries(
    {
        "action": TOKENS,
        "added": TOKENS,
        "rewrite": st.none() | st.lists(st.integers(0, 2), min_size=1, max_size=6),
        "reward": st.sampled_from([None, 0.0, 0.5, 1.0]),
        "version": st.integers(0, 3),
    }
)
CRITIC_FREE = sorted(name for name, kind in ESTIMATORS.items() if not (kind.needs_values or kind.needs_teacher))
TRAJECTORIES = st.lists(
    st.tuples(st.lists(STEP, min_size=1, max_size=5), st.sampled_from(list(StopReason))), min_size=1, max_size=4
)
OPTIONS = st.fixed_dictionaries(
    {
        "max_length": st.none() | st.integers(1, 12),
        "max_lag": st.none() | st.integers(0, 2),
        "policy_version": st.just(3),
        "zero_advantage": st.sampled_from(["keep", "drop"]),
    }
)


@pytest.fixture(scope="session")
def build(make_step, make_trajectory, make_group):
    """A group from drawn trajectories: each prompt appends to the last step or is rewritten."""

    def make(drawn):
        done, failed = [], []
        for i, (steps, stop) in enumerate(drawn):
            prompt, made = [0, 1], []
            for index, step in enumerate(steps):
                prompt = prompt if step["rewrite"] is None else step["rewrite"]
                versions = [step["version"]] * len(step["action"])
                made.append(make_step(index, prompt, step["action"], reward=step["reward"], versions=versions))
                prompt = [*prompt, *step["action"], *step["added"]]
            (failed if stop.is_failure else done).append(make_trajectory(f"t{i}", *made, stop_reason=stop))
        return make_group(*done, failed=failed)

    return make


def trained_tokens(batch, mode):
    """The multiset of trained tokens, each with its whole context, its step and its numbers."""
    found = Counter()
    constant = 10.0 if mode == "dr-grpo" else None
    for row, weights in zip(batch.rows, token_weights(batch, mode, constant), strict=True):
        ids = [*row.prompt_ids.tolist(), *row.completion_ids.tolist()]
        for j in np.flatnonzero(row.mask):
            numbers = (row.advantages[j], row.logprobs[j], round(weights[j], 12), row.versions[j])
            context = tuple(ids[: len(row.prompt_ids) + j + 1])
            found[row.trajectory_id, int(row.span_ids[j]), context, *map(float, numbers)] += 1
    return found


@law
@given(drawn=TRAJECTORIES, options=OPTIONS, name=st.sampled_from(CRITIC_FREE), data=st.data())
def test_merged_and_separate_rows_train_the_same(build, drawn, options, name, data):
    group = build(drawn)
    truncated = data.draw(st.sampled_from(["return", "mask"]))
    credit = ESTIMATORS[name]({"truncated": truncated}).estimate(CreditBatch.from_groups([group]))
    separate = make_rows([group], credit, merge="none", **options)
    merged = make_rows([group], credit, merge="linear", **options)
    for mode in get_args(WeightMode):
        assert trained_tokens(separate, mode) == trained_tokens(merged, mode)
    assert separate.ledger == merged.ledger
    assert separate.n_steps == merged.n_steps == len(merged.rows) + merged.merged_steps
    assert len(separate.rows) == separate.n_steps


@law
@given(drawn=TRAJECTORIES, options=OPTIONS, merge=st.sampled_from(["none", "linear"]))
def test_the_ledger_balances(build, drawn, options, merge):
    group = build(drawn)
    credit = ESTIMATORS["step_grpo"]({"truncated": "mask"}).estimate(CreditBatch.from_groups([group]))
    batch = make_rows([group], credit, merge=merge, **options)
    ledger = batch.ledger
    assert ledger.balances
    assert ledger.sampled == sum(t.n_sampled for t in (*group.trajectories, *group.failed))
    assert ledger.trained == sum(row.n_trained for row in batch.rows)
    assert sum(ledger.dropped.get(str(r), 0) for r in StopReason) == sum(t.n_sampled for t in group.failed)


@law
@given(drawn=TRAJECTORIES, options=OPTIONS)
def test_no_row_is_too_long_and_every_step_that_fits_trains(build, drawn, options):
    group = build(drawn)
    credit = Credit(advantages=np.ones(CreditBatch.from_groups([group]).total_tokens))
    options = {**options, "max_lag": None}
    batch = make_rows([group], credit, merge="linear", **options)
    limit = options["max_length"] or np.inf
    assert all(len(row) <= limit for row in batch.rows)
    found = {(row.trajectory_id, index) for row in batch.rows for index in row.step_indices}
    expected = {
        (t.id, step.index)
        for t in group.trajectories
        for step in t.steps
        if t.is_scorable and len(step.action) and len(step.prompt_ids) + len(step.action) <= limit
    }
    assert found == expected


@law
@given(drawn=TRAJECTORIES)
def test_append_only_trajectories_need_one_row_each(build, drawn):
    drawn = [([{**step, "rewrite": None, "reward": 1.0} for step in steps], stop) for steps, stop in drawn]
    group = build(drawn)
    credit = Credit(advantages=np.ones(CreditBatch.from_groups([group]).total_tokens))
    batch = make_rows([group], credit, merge="linear")
    assert len(batch.rows) == batch.n_trajectories == sum(t.n_sampled > 0 for t in group.trajectories)


@law
@given(drawn=TRAJECTORIES, mode=st.sampled_from(["token-mean", "traj-mean-token-mean", "step-mean"]))
def test_means_weigh_one_in_total(build, drawn, mode):
    group = build(drawn)
    credit = Credit(advantages=np.ones(CreditBatch.from_groups([group]).total_tokens))
    batch = make_rows([group], credit, merge="linear")
    if batch.rows:
        assert sum(w.sum() for w in token_weights(batch, mode)) == pytest.approx(1.0)
