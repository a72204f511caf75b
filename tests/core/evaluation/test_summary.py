"""From attempts to figures; keys, identities and half-written lines."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentr1_core.config import check_config
from agentr1_core.errors import DataError
from agentr1_core.evaluation import (
    Attempt,
    EvaluationFolder,
    default_grouping,
    group_of,
    identify,
    keyed,
    summarise,
    task_name,
)
from agentr1_core.mdp import (
    Action,
    Observation,
    Step,
    StopReason,
    TokenUsage,
    ToolCall,
    Trajectory,
    float_array,
    token_array,
)
from agentr1_core.run_folder import Recorder, RunFolder, whole_lines
from agentr1_core.task import Task

#: Times mean nothing on a busy machine.
law = settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])


def attempt(task, number=0, *, solved=False, failed=False, ret=None, info=None):
    return Attempt(
        task=task,
        attempt=number,
        name=f"task {task}",
        success=solved,
        ret=float(solved) if ret is None else ret,
        steps=2,
        tokens=10,
        prompt_tokens=30,
        stop_reason="env_error" if failed else "terminated",
        seconds=0.5,
        error="OSError: down" if failed else None,
        info=info or {},
    )


def test_pass_at_k_by_hand():
    """Task a: 1 of 2 solved, b: 0 of 2, c: 2 of 2."""
    tried = [attempt("a", 0, solved=True), attempt("a", 1), attempt("b", 0), attempt("b", 1)]
    tried += [attempt("c", number, solved=True) for number in range(2)]

    rates = summarise(tried, k=2).figures.rates
    assert {name: estimate.value for name, estimate in rates.items()} == {
        "success": 0.5,
        "pass@1": 0.5,
        "pass@2": pytest.approx(2 / 3),
        "pass^2": pytest.approx(1 / 3),
    }


def test_failed_episodes_are_left_out_and_counted():
    tried = [attempt("a", 0, solved=True), attempt("a", 1, failed=True), attempt("b", 0), attempt("b", 1)]
    tried += [attempt("c", number, failed=True) for number in range(2)]

    summary = summarise(tried, {"a": "x", "b": "x", "c": "y"}, k=2)
    figures = summary.figures
    assert (figures.tasks, figures.attempts, figures.failed) == (3, 3, 3)
    assert figures.rates["success"].value == pytest.approx(1 / 3)
    assert figures.rates["pass@2"].value == 0.0  # only b was tried twice
    assert figures.short == {"pass@1": 1, "pass@2": 2}
    assert summary.failures == {"OSError: down": 3}
    assert summary.stop_reasons == {"env_error": 3, "terminated": 3}
    assert summary.success_if_failed_count == pytest.approx(1 / 6)
    assert summary.groups["y"].rates == {}
    json.dumps(summary.as_dict(), allow_nan=False)


def test_numbers_of_the_environment_are_averaged_where_they_are():
    tried = [attempt("a", info={"recall": 1.0, "f1": 0.5}), attempt("b", info={"recall": 0.0})]

    means = summarise(tried).figures.means
    assert means["info/recall"].value == 0.5
    assert means["info/f1"].value == 0.5
    assert {"reward", "steps", "tokens", "prompt_tokens", "seconds"} <= means.keys()


@law
@given(st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=12), st.randoms())
def test_the_order_of_attempts_changes_nothing(tasks, random):
    tried = [attempt(f"{t}", n, solved=solved) for t, task in enumerate(tasks) for n, solved in enumerate(task)]
    mixed = list(tried)
    random.shuffle(mixed)

    figures, others = summarise(tried, k=4).figures, summarise(mixed, k=4).figures
    for name, estimate in figures.rates.items():
        assert others.rates[name].value == pytest.approx(estimate.value)
        assert others.rates[name].low == pytest.approx(estimate.low)
    shares = [figures.rates[f"pass@{k}"].value for k in (1, 2, 4)]
    assert shares == sorted(shares)
    success, first = figures.rates["success"], figures.rates["pass@1"]
    assert (first.value, first.low, first.high) == pytest.approx((success.value, success.low, success.high))
    assert shares[-1] == pytest.approx(np.mean([any(task) for task in tasks]))


def test_an_attempt_is_read_as_it_was_written():
    step = Step(
        0,
        Observation(({"role": "user", "content": "?"},)),
        Action(token_array([]), float_array([]), trainable=False, usage=TokenUsage(12, 5)),
        reward=1.0,
        info={"em": np.float32(1), "hits": 3, "right": True, "text": "x", "nan": float("nan"), "success": False},
    )
    trajectory = Trajectory("eval/k/1", "eval/k", Task({}), (step,), StopReason.TERMINATED, rewards={"env": 1.0})

    made = Attempt.of(trajectory, "k", 1, "one")
    assert made.info == {"em": 1.0, "hits": 3.0, "right": 1.0}
    assert not made.success  # as the environment says, though the return is positive
    assert (made.tokens, made.prompt_tokens) == (5, 12)
    assert Attempt.from_row(json.loads(json.dumps(made.as_row())), "results.jsonl") == made
    for row in ({"id": 1}, {**made.as_row(), "stop_reason": "bored"}):
        with pytest.raises(DataError, match=r"results\.jsonl"):
            Attempt.from_row(row, "results.jsonl")


def test_tasks_are_known_by_their_content():
    tasks = [Task({"q": 1}, "here"), Task({"q": 2}), Task({"q": 1}), Task({"array": np.arange(2)})]

    first, second, again, _ = keyed(tasks)
    assert again == f"{first}-2"
    assert next(iter(keyed(tasks[1:3]))) == second
    assert list(keyed([Task({"q": 1}, "elsewhere")])) == [first]


def test_names_and_groups_of_tasks():
    tasks = [Task({"extra_info": {"task_type": kind, "id": kind * 2}, "data_source": "one"}, "row") for kind in "ab"]

    assert default_grouping(tasks) == "task_type"
    assert [group_of(task, "task_type") for task in tasks] == ["a", "b"]
    assert [task_name(task) for task in tasks] == ["aa", "bb"]
    assert task_name(Task({"q": 1}, "file row 3")) == "file row 3"
    assert default_grouping([Task({"data_source": str(i)}) for i in range(100)]) is None
    assert default_grouping(tasks[:1]) is None


def test_patience_may_change_and_what_is_asked_may_not():
    def identity(**sections):
        return identify(check_config({"engine": {"name": "openai", "retries": 1}, **sections}), "eval", "m")

    begun = identity()
    patient = identity(
        engine={"name": "openai", "retries": 9, "give_up_after_s": 99}, rollout={"concurrency": 1}, report={}
    )
    assert patient.differences(begun) == []
    other = identity(engine={"name": "openai", "base_url": "http://x"}, sampling={"top_p": 0.5})
    assert set(other.differences(begun)) == {
        "engine.base_url was not set and is 'http://x'",
        "sampling.top_p was 1.0 and is 0.5",
    }


@law
@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\r\n")), max_size=5), st.integers(0, 200))
def test_only_whole_lines_are_left(tmp_path_factory, lines, n_bytes):
    path = tmp_path_factory.mktemp("lines") / "results.jsonl"
    content = "".join(line + "\n" for line in lines).encode()[:n_bytes]
    path.write_bytes(content)

    whole_lines(path)
    left = path.read_bytes()
    assert content.startswith(left)
    assert left == b"" or left.endswith(b"\n")
    assert b"\n" not in content[len(left) :]


def test_a_long_half_line_is_cut_off(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"whole\n" + b"x" * 200_000)
    whole_lines(path)
    assert path.read_bytes() == b"whole\n"


@pytest.mark.parametrize("text", ["one\u2028two\x85three", "half a \ud83d character", "\U0001f600"])
def test_any_text_is_kept_and_read_again(tmp_path, text):
    """A model may say what is a line end to str, and write half a character into the arguments of a call."""
    folder = RunFolder(tmp_path)
    recorder = Recorder(folder)
    said = Action(token_array([1]), float_array([0.0]), tool_calls=(ToolCall("search", {"query": text}, "c"),))
    step = Step(0, Observation(({"role": "user", "content": text},)), said, reward=0.0)
    recorder.keep([Trajectory("eval/a/0", "eval/a", Task({}), (step,), StopReason.TERMINATED)], "eval")
    recorder.close()
    (row,) = folder.read_trajectories()
    assert row["steps"][0]["seen"][0]["content"] == text
    assert row["steps"][0]["tool_calls"][0]["arguments"] == {"query": text}

    with EvaluationFolder(folder) as kept:
        kept.add(replace(attempt("a"), error=text))
    (kept_attempt,) = EvaluationFolder(folder).read().values()
    assert kept_attempt.error == text
    folder.write_summary({"failures": {text: 1}})
    assert folder.read_summary() == {"failures": {text: 1}}


def test_a_line_that_ends_within_a_character_is_left_out(tmp_path):
    folder = RunFolder(tmp_path)
    folder.results.write_bytes('{"a": 1}\n{"a": "\U0001f600'.encode()[:-2])
    assert folder.read_results() == [{"a": 1}]
    folder.results.write_bytes(b"")
    assert folder.read_results() == []
