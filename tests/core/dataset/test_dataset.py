"""Loading tasks: every format gives the same rows, and every mistake one clear error."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_core.dataset import load_rows, load_tasks
from agentr1_core.errors import DataError

# One row of each of two public layouts: env_kwargs as JSON text, and as a mapping.
GSM8K: dict[str, Any] = {
    "data_source": "openai/gsm8k",
    "agent_name": "agent_env_loop",
    "prompt": [{"role": "user", "content": "Janet has 16 eggs and sells 9 at 2 dollars. What does she make?"}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "18"},
    "extra_info": {"index": 0, "split": "train"},
    "env_kwargs": '{"env_type": "tool", "tools": ["calculator"], "tool_format": "hermes"}',
    "tools_kwargs": {"calculator": {"ground_truth": "18"}},
    "level": 3,
}
PLAIN: dict[str, Any] = {**GSM8K, "env_kwargs": {"max_turns": 4}, "prompt": "What is 9 times 2?"}


def write_jsonl(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def write_gzip(path: Path, rows: list[dict[str, Any]]) -> Path:
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def write_json(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(rows))
    return path


def write_parquet(path: Path, rows: list[dict[str, Any]]) -> Path:
    import datasets

    datasets.Dataset.from_list(rows).to_parquet(str(path))
    return path


def write_arrow(path: Path, rows: list[dict[str, Any]]) -> Path:
    import datasets

    datasets.Dataset.from_list(rows).save_to_disk(str(path))
    return next(path.glob("*.arrow"))


def write_saved(path: Path, rows: list[dict[str, Any]]) -> Path:
    import datasets

    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(str(path))
    return path


def write_folder(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.mkdir()
    write_jsonl(path / "train.jsonl", rows)
    write_jsonl(path / "test.jsonl", rows[:1])
    return path


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("rows.jsonl", write_jsonl),
        ("rows.jsonl.gz", write_gzip),
        ("rows.json", write_json),
        ("rows.parquet", write_parquet),
        ("rows_arrow", write_arrow),
        ("rows_saved", write_saved),
        ("rows_folder", write_folder),
    ],
)
def test_rows_in_the_usual_columns_load_unchanged(
    tmp_path: Path, name: str, write: Callable[[Path, list[dict[str, Any]]], Path]
) -> None:
    source = write(tmp_path / name, [GSM8K, {**GSM8K, "level": 4}])

    first, second = load_tasks(source)

    assert first.prompt == tuple(GSM8K["prompt"])
    assert first.agent_name == "agent_env_loop"
    assert first.ground_truth == "18"
    assert first.env_kwargs == {"env_type": "tool", "tools": ["calculator"], "tool_format": "hermes"}
    assert first.tools_kwargs == {"calculator": {"ground_truth": "18"}}
    assert first.extra_info == {"index": 0, "split": "train"}
    assert (first["level"], second["level"]) == (3, 4)
    assert second.where == f"{source.name} row 1"


def test_json_lines_may_differ_in_shape(tmp_path: Path) -> None:
    tasks = load_tasks(write_jsonl(tmp_path / "rows.jsonl", [GSM8K, PLAIN, {"question": "?"}]))

    assert tasks[1].env_kwargs == {"max_turns": 4}
    assert tasks[1].prompt == ({"role": "user", "content": "What is 9 times 2?"},)
    assert dict(tasks[2]) == {"question": "?"}


def test_csv_columns_are_text_and_json_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["prompt", "answer", "env_kwargs"])
        writer.writerow(["1 + 1?", "two", '{"max_turns": 2}'])

    (task,) = load_tasks(path)

    assert task.prompt[0]["content"] == "1 + 1?"
    assert task.ground_truth == "two"
    assert task.env_kwargs == {"max_turns": 2}


@settings(max_examples=25, deadline=None)
@given(n=st.integers(1, 30), limit=st.integers(1, 40), seed=st.integers(0, 5))
def test_shuffling_is_a_repeatable_permutation_and_the_limit_cuts_it(
    tmp_path_factory: pytest.TempPathFactory, n: int, limit: int, seed: int
) -> None:
    path = write_jsonl(tmp_path_factory.mktemp("rows") / "rows.jsonl", [{"i": i} for i in range(n)])

    rows = load_rows(path, shuffle_seed=seed)

    assert sorted(number for number, _ in rows) == list(range(n))
    assert all(row["i"] == number for number, row in rows)
    assert load_rows(path, shuffle_seed=seed, limit=limit) == rows[:limit]


def test_the_first_split_that_exists_is_taken(tmp_path: Path) -> None:
    saved = write_saved(tmp_path / "saved", [GSM8K])

    assert len(load_tasks(saved, split=("test", "train"))) == 1
    assert len(load_tasks(write_folder(tmp_path / "files", [GSM8K, GSM8K]), split="test")) == 1
    with pytest.raises(DataError, match="has no split 'test'; it has: train"):
        load_tasks(saved, split="test")


def test_a_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "train.jsonl", [GSM8K])

    with pytest.raises(DataError, match=r"no data file '.*trian\.jsonl'") as caught:
        load_tasks(tmp_path / "trian.jsonl")
    assert "train.jsonl" in str(caught.value.mend)
    with pytest.raises(DataError, match=r"The folder '.*' does not exist either"):
        load_tasks(tmp_path / "nowhere" / "train.jsonl")


def test_a_missing_column_names_those_there_are(tmp_path: Path) -> None:
    path = write_jsonl(tmp_path / "rows.jsonl", [{"promt": "hi", "answer": "ho"}])

    with pytest.raises(DataError, match=r"no column 'prompt'; its columns are: promt, answer") as caught:
        load_rows(path, columns=["prompt"])
    assert "Did you mean 'promt'?" in str(caught.value.mend)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("empty.jsonl", "", "is empty"),
        ("blank.jsonl", "\n\n", "has no rows"),
        ("none.json", "[]", "has no rows"),
        ("broken.jsonl", '{"a": 1}\n{"a": \n', "line 2 is not valid JSON"),
        ("list.jsonl", "[1, 2]\n", "line 1 is a list, not an object"),
        ("number.json", "5", "holds a int"),
        ("rows.parquet", "no parquet at all", "cannot be read"),
        ("rows.xlsx", "x", "unknown ending"),
        ("rows.jsonl.gz", "not gzip", "cannot be read"),
        ("kwargs.jsonl", '{"prompt": "a"}\n{"prompt": "b", "env_kwargs": "{oops"}\n', "row 1: column 'env_kwargs'"),
        ("prompt.jsonl", '{"prompt": [{"text": "hi"}]}\n', "row 0: column 'prompt' has no role"),
    ],
)
def test_malformed_data_are_told_with_file_and_row(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text)

    with pytest.raises(DataError) as caught:
        load_tasks(tmp_path / name)
    assert problem in caught.value.problem
    assert name in caught.value.problem
    assert caught.value.mend


def test_a_folder_without_data_says_what_it_wants(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no data files"):
        load_tasks(tmp_path)


def test_an_unreachable_hub_id_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    def refuse(name: str, configuration: str | None) -> None:
        raise ConnectionError("offline")

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(DataError, match="'someone/somewhere' is no file here, and could not be loaded from the hub"):
        load_tasks("someone/somewhere")


def test_a_hub_id_may_name_a_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    asked = []

    def load(name: str, configuration: str | None) -> dict[str, list[dict[str, str]]]:
        asked.append((name, configuration))
        return datasets.DatasetDict(test=datasets.Dataset.from_list([{"prompt": "Tea?"}]))

    monkeypatch.setattr(datasets, "load_dataset", load)
    for source in ("someone/some.thing:main", "someone/some.thing"):
        (task,) = load_tasks(source, split="test")
        assert task["prompt"] == "Tea?"
    assert asked == [("someone/some.thing", "main"), ("someone/some.thing", None)]
