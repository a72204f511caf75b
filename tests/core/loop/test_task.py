"""Task rows in the de-facto columns load unchanged."""

import pytest

from agentr1_core.errors import DataError
from agentr1_core.task import Task

ROW = {
    "prompt": [{"role": "user", "content": "2+2?", "name": None}],
    "data_source": "gsm8k",
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "4"},
    "extra_info": {"index": 0, "split": "train"},
    "agent_name": "tool_env",
    "env_kwargs": '{"max_turns": 3}',
    "tools_kwargs": {"calculator": {"digits": 2}, "search": None},
    "difficulty": "easy",
}


def test_known_columns_have_accessors_and_others_stay():
    task = Task(ROW)
    assert task.prompt == ({"role": "user", "content": "2+2?"},)
    assert (task.data_source, task.agent_name, task.ground_truth) == ("gsm8k", "tool_env", "4")
    assert task.env_kwargs == {"max_turns": 3}
    assert task.tools_kwargs == {"calculator": {"digits": 2}}
    assert task.extra_info["index"] == 0
    assert task["difficulty"] == "easy"
    assert set(task) == set(ROW)


def test_prompt_may_be_a_string_or_missing():
    assert Task({"prompt": "Hi"}).prompt == ({"role": "user", "content": "Hi"},)
    assert Task({}).prompt == ()


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"env_kwargs": "{oops"}, "t.jsonl row 3: column 'env_kwargs' is a string but not JSON"),
        ({"env_kwargs": "[1]"}, "column 'env_kwargs' is a list, not a mapping"),
        ({"prompt": [{"role": "user"}]}, "column 'prompt' has no role and content in message 0"),
    ],
)
def test_malformed_columns_name_the_row(row, problem):
    task = Task(row, "t.jsonl row 3")
    with pytest.raises(DataError) as caught:
        _ = task.prompt, task.env_kwargs
    assert problem in str(caught.value)
