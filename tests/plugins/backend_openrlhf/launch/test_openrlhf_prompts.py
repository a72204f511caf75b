"""Tasks on their way through OpenRLHF's prompt files."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_backend_openrlhf.prompts import label_of, read_label, write_prompts
from agentr1_core.errors import DataError
from agentr1_core.task import Task

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(row=st.dictionaries(st.text(), JSON, max_size=5), where=st.text(), split=st.sampled_from(["train", "eval"]))
def test_a_task_comes_back_as_it_was(row, where, split):
    task, found = read_label("whatever OpenRLHF shows", label_of(Task(row, where), split))

    assert dict(task) == row
    assert (task.where, found) == (where, split)


def lines_of(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_file_holds_the_prompts_of_all_updates(make_job, tmp_path):
    job = make_job(run_dir=tmp_path)  # 5 tasks, 3 updates of 8 prompts

    lines = lines_of(write_prompts(job).train)

    tasks = [read_label(line["prompt"], line["label"])[0].where for line in lines]
    assert len(tasks) == 24
    assert all(len(set(tasks[start : start + 5])) == 5 for start in range(0, 20, 5))  # pass by pass
    assert set(Counter(tasks).values()) == {4, 5}
    assert {type(value) for line in lines for value in line.values()} == {str}


def test_the_order_is_that_of_the_seed(make_job, tmp_path):
    jobs = [make_job(run_dir=tmp_path / str(n), seed=seed) for n, seed in enumerate((1, 1, 2))]

    once, again, other = (write_prompts(job).train.read_text() for job in jobs)

    assert once == again
    assert once != other


def test_held_out_tasks_get_a_file_of_their_own(make_job, tmp_path):
    tasks = [Task({"prompt": "What?", "data_source": "hard"}, "held out 0")]
    job = make_job(run_dir=tmp_path, eval_tasks=tasks)

    (line,) = lines_of(write_prompts(job).eval)

    assert (line["prompt"], line["datasource"]) == ("What?", "hard")
    assert read_label(line["prompt"], line["label"])[1] == "eval"
    assert write_prompts(replace(job, eval_tasks=[])).eval is None


def test_a_new_run_keeps_nothing_of_an_earlier_launch(make_job, tmp_path):
    left = tmp_path / "openrlhf" / "events.jsonl"
    left.parent.mkdir()
    left.write_text("of an earlier launch")

    write_prompts(make_job(run_dir=tmp_path, resume=True))
    assert left.is_file()
    write_prompts(make_job(run_dir=tmp_path))
    assert not left.exists()


def test_numpy_becomes_plain_and_anything_else_is_refused_with_its_row():
    row = {"numbers": np.array([1, 2]), "one": np.float32(0.5)}
    assert dict(read_label("", label_of(Task(row), "train"))[0]) == {"numbers": [1, 2], "one": 0.5}

    with pytest.raises(DataError, match=r"data row 7 cannot be handed .* holds a bytes"):
        label_of(Task({"picture": b"png"}, "data row 7"), "train")


@pytest.mark.parametrize(
    ("label", "truth", "more"),
    [
        ("42", "42", {}),
        (42, 42, {}),
        ("", "", {}),
        ("{not json", "{not json", {}),
        ('{"ground_truth": "4", "level": 2}', "4", {"level": 2}),
        ({"answer": 4, "level": 2}, 4, {"level": 2}),
    ],
)
def test_a_data_set_of_the_users_own_gives_tasks_too(label, truth, more):
    task, split = read_label("2 + 2?", label)

    assert task.prompt == ({"role": "user", "content": "2 + 2?"},)
    assert task.ground_truth == truth
    assert {name: task[name] for name in more} == more
    assert split == "train"


def test_a_damaged_label_is_told():
    with pytest.raises(DataError, match="damaged"):
        read_label("", '{"agentr1": "train", "where": "row 0"}')
