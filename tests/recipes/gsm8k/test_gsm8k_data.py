"""GSM8K's data: the formats that load, the recipe's own set, and every row of the public one."""

import json
import random
import re

import pytest

from agentr1_core.dataset import load_tasks
from agentr1_core.errors import ConfigError, DataError
from agentr1_core.plugins import PluginManager
from agentr1_recipes.gsm8k.loader import SYSTEM_PROMPT, calculations, final_number, load, to_task
from agentr1_recipes.gsm8k.recipe import GSM8K
from agentr1_recipes.gsm8k.reward import flexible_answer, strict_answer
from agentr1_recipes.gsm8k.word_problems import DATA, TEMPLATES, make_data, make_problem
from agentr1_tools.calculator import calculate

ROW = {
    "question": "A box holds 48 eggs. Half of them break. How many are whole, of 2 boxes?",
    "answer": "48/2 = <<48/2=24>>24 in one.\n24*2 = <<24*2=48>>48\n#### 1,048",
}


def test_an_original_row():
    task = to_task(ROW, "row 0", "train", 0, SYSTEM_PROMPT)
    assert [message["role"] for message in task.prompt] == ["system", "user"]
    assert task.prompt[1]["content"] == ROW["question"]
    assert task.ground_truth == "1048"
    assert (task.data_source, task["ability"]) == ("openai/gsm8k", "math")
    assert task.extra_info == {"split": "train", "index": 0, **ROW}
    assert calculations(ROW["answer"]) == [("48/2", "24"), ("24*2", "48")]
    assert len(to_task(ROW, "row 0", "train", 0, None).prompt) == 1


def processed(index):
    """A row as Agent-R1's script for GSM8K with a tool writes it."""
    return {
        "data_source": "openai/gsm8k",
        "agent_name": "agent_env_loop",
        "prompt": [{"role": "system", "content": "You are a math expert."}, {"role": "user", "content": "1 + 1?"}],
        "ability": "math",
        "reward_model": {"style": "rule", "ground_truth": "2"},
        "extra_info": {"split": "train", "index": index, "answer": "#### 2", "question": "1 + 1?"},
        "env_kwargs": json.dumps(
            {
                "env_type": "tool",
                "tools": ["calc_gsm8k_reward"],
                "tool_format": "hermes",
                "tools_kwargs": {"ground_truth": "2"},
            }
        ),
    }


def test_a_processed_parquet_file_is_taken_as_it_is(tmp_path):
    import datasets

    path = tmp_path / "train.parquet"
    datasets.Dataset.from_list([processed(i) for i in range(3)]).to_parquet(path)
    tasks = GSM8K(data=str(path)).tasks("train", 10, seed=0)
    assert sorted(task.extra_info["index"] for task in tasks) == [0, 1, 2]
    assert all(task.prompt[0]["content"] == "You are a math expert." and task.ground_truth == "2" for task in tasks)
    assert [dict(task) for task in load(path, "train")] == [dict(task) for task in load_tasks(path)]


def test_a_folder_has_its_test_split_for_evaluation(tmp_path):
    for split, n in (("train", 3), ("test", 2)):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(ROW) + "\n" for _ in range(n)))
    recipe = GSM8K(data=str(tmp_path))
    assert len(recipe.tasks("train", 10, 0)) == 3
    assert [task.extra_info["split"] for task in recipe.tasks("eval", 10, 0)] == ["eval", "eval"]
    with pytest.raises(ConfigError, match="has no split 'hard'"):
        recipe.tasks("hard", 10, 0)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"question": "1 + 1?"}, "neither `question` and `answer` nor `prompt`; its columns are: question"),
        ({"question": "1 + 1?", "answer": "two"}, "no number after '####': 'two'"),
        ({"question": "1 + 1?", "answer": "#### two"}, "no number after '####'"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(row, problem):
    with pytest.raises(DataError) as caught:
        to_task(row, "my.jsonl row 7", "train", 7, None)
    assert caught.value.problem.startswith("my.jsonl row 7")
    assert problem in caught.value.problem


def test_the_own_set_is_what_the_templates_give():
    for split, rows in make_data().items():
        lines = (DATA / f"{split}.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == rows


def test_no_held_out_question_is_trained_on():
    recipe = GSM8K()
    train, held, hard = (recipe.tasks(split, 10**6, 0) for split in recipe.splits)
    assert (len(train), len(held), len(hard)) == (400, 100, 50)
    questions = [task.extra_info["question"] for task in (*train, *held, *hard)]
    assert len(set(questions)) == len(questions)
    shown = {row["prompt"][1]["content"] for row in recipe.demonstrations(300, 0)}
    assert not shown & {task.extra_info["question"] for task in (*held, *hard)}


def test_tasks_repeat_and_held_out_tasks_do_not_depend_on_the_seed():
    recipe = GSM8K()
    assert recipe.tasks("train", 5, 1) == recipe.tasks("train", 5, 1) != recipe.tasks("train", 5, 2)
    assert recipe.tasks("eval", 5, 1) == recipe.tasks("eval", 5, 2)
    assert list(recipe.demonstrations(5, 1)) == list(recipe.demonstrations(5, 1)) != list(recipe.demonstrations(5, 2))


def test_every_template_gives_problems_whose_solutions_are_right():
    rng, seen = random.Random(0), set()
    for _ in range(400):
        row = make_problem(rng, (1, 2, 3))
        worked = calculations(row["answer"])
        for text, value in worked:
            assert calculate(text) == int(value) > 0
        assert worked[-1][1] == final_number(row["answer"])
        first = worked[0][0]
        assert all(number in re.findall(r"\d+", row["question"]) for number in re.findall(r"\d+", first))
        seen.add((len(worked), re.sub(r"\d+", "", row["question"]).split()[1]))
    assert len(TEMPLATES) >= 12
    assert {n for n, _ in seen} == {1, 2, 3}


def test_the_recipe_and_its_rewards_are_known_by_name():
    plugins = PluginManager.discover()
    assert plugins.get("recipe", "gsm8k") is GSM8K
    for name in ("gsm8k_strict", "gsm8k_flexible"):
        assert plugins.get("reward", name).__name__ == name


def test_all_public_rows(real_data):
    """Every gold answer parses and scores as right, and our calculator evaluates every calculation."""
    folder = real_data("gsm8k", "all 7,473 train and 1,319 test rows")
    sizes, n_calculations = {}, 0
    for split in ("train", "eval"):
        tasks = load(folder, split)
        sizes[split] = len(tasks)
        for task in tasks:
            solution, truth = task.extra_info["answer"], task.ground_truth
            assert strict_answer(solution) == truth
            assert flexible_answer(f"The answer is {truth}") == truth
            assert solution.count("<<") == len(calculations(solution)), task.where
            for text, value in calculations(solution):
                n_calculations += 1
                wanted = 0.75 if value == "3/4" else float(value)  # the one value that is a fraction
                assert calculate(text) == pytest.approx(wanted, rel=0.01, abs=0.01), (task.where, text)
    assert sizes == {"train": 7473, "eval": 1319}
    assert n_calculations == 27998
