"""Multi-hop data: each public format in its own columns, the recipe's world, and the real samples."""

import gzip
import json

import pytest

from agentr1_core.errors import DataError
from agentr1_core.plugins import PluginManager
from agentr1_recipes.multihop.loader import SYSTEM_PROMPT, load, to_task
from agentr1_recipes.multihop.recipe import MultiHop
from agentr1_recipes.multihop.world import DATA, make_world, split_questions

PARAGRAPHS = [("Ada", ["Ada was born in Oxley.", " She sailed."]), ("Oxley", ["Oxley lies on the Isk."])]
QUESTION = {"question": "On which river was Ada born?", "answer": "Isk"}
FACTS = [["Ada", 0], ["Oxley", 0]]

FORMATS = {
    "HotpotQA": {**QUESTION, "_id": "q1", "type": "bridge", "context": PARAGRAPHS, "supporting_facts": FACTS},
    "HotpotQA on the hub": {
        **QUESTION,
        "id": "q1",
        "type": "bridge",
        "context": {"title": ["Ada", "Oxley"], "sentences": [sentences for _, sentences in PARAGRAPHS]},
        "supporting_facts": {"title": ["Ada", "Oxley"], "sent_id": [0, 0]},
    },
    "2WikiMultihopQA": {
        **QUESTION,
        "_id": "q1",
        "type": "bridge",
        "context": PARAGRAPHS,
        "supporting_facts": FACTS,
        "evidences": [["Ada", "born in", "Oxley"]],
    },
    "2WikiMultihopQA as JSON texts": {
        **QUESTION,
        "_id": "q1",
        "type": "bridge",
        "context": json.dumps(PARAGRAPHS),
        "supporting_facts": json.dumps(FACTS),
        "evidences": "[]",
    },
    "MuSiQue": {
        **QUESTION,
        "id": "q1",
        "answer_aliases": ["River Isk"],
        "answerable": True,
        "paragraphs": [
            {"idx": i, "title": title, "paragraph_text": " ".join(map(str.strip, said)), "is_supporting": True}
            for i, (title, said) in enumerate(PARAGRAPHS)
        ],
    },
    "IRCoT": {
        "question_id": "q1",
        "question_text": QUESTION["question"],
        "answers_objects": [{"spans": ["Isk", "River Isk"]}],
        "contexts": [
            {"idx": i, "title": title, "paragraph_text": " ".join(map(str.strip, said)), "is_supporting": True}
            for i, (title, said) in enumerate(PARAGRAPHS)
        ],
    },
}


@pytest.mark.parametrize("row", FORMATS.values(), ids=FORMATS)
def test_formats(row):
    task = to_task(row, "row 0", "eval", 0, SYSTEM_PROMPT)
    assert task.prompt[-1] == {"role": "user", "content": QUESTION["question"]}
    assert task.ground_truth[0] == "Isk"
    assert ("River Isk" in task.ground_truth) == ("paragraphs" in row or "contexts" in row)
    assert task.extra_info["supporting"] == ["Ada", "Oxley"]
    assert task.extra_info["id"] == "q1"
    assert task["passages"] == [
        {"id": "Ada", "title": "Ada", "text": "Ada was born in Oxley. She sailed."},
        {"id": "Oxley", "title": "Oxley", "text": "Oxley lies on the Isk."},
    ]


def test_data_sources_are_told_apart():
    found = {name: to_task(row, "row", "eval", 0, None).data_source for name, row in FORMATS.items()}
    assert found["HotpotQA"] == found["HotpotQA on the hub"] == "hotpotqa"
    assert found["2WikiMultihopQA"] == found["2WikiMultihopQA as JSON texts"] == "2wikimultihopqa"
    assert found["MuSiQue"] == "musique"


def test_flashrag_and_processed_rows():
    row = {"id": "q1", "question": "Who?", "golden_answers": ["Ada", "Ada B."], "metadata": {}}
    assert to_task(row, "row", "eval", 0, None).ground_truth == ["Ada", "Ada B."]
    row = {"prompt": "Who?", "reward_model": {"ground_truth": "Ada"}, "agent_name": "hotpotqa_agent"}
    assert dict(to_task(row, "row", "eval", 0, SYSTEM_PROMPT)) == row


def test_unanswerable_questions_are_left_out(tmp_path):
    rows = [FORMATS["MuSiQue"], {**FORMATS["MuSiQue"], "answerable": False}]
    (tmp_path / "dev.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert len(load(tmp_path, "eval")) == 1


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"text": "Who?"}, "neither `question` nor `prompt`; its columns are: text"),
        ({"question": "Who?", "answer": None}, "has no answer"),
        ({**FORMATS["HotpotQA"], "context": "not json"}, "is a text but not JSON"),
    ],
)
def test_a_row_that_cannot_be_used_is_named(row, problem):
    with pytest.raises(DataError) as caught:
        to_task(row, "my.jsonl row 7", "train", 7, None)
    assert caught.value.problem.startswith("my.jsonl row 7")
    assert problem in caught.value.problem


def test_the_own_set_is_what_the_world_gives():
    world = make_world()
    written = {name: [json.loads(line) for line in (DATA / f"{name}.jsonl").open()] for name in ("train", "eval")}
    assert written == split_questions(world)
    passages = [json.loads(line) for line in (DATA / "passages.jsonl").open()]
    assert {each["title"]: each["text"] for each in passages} == world.passages


def test_every_question_of_the_world_takes_both_its_passages():
    world = make_world()
    for row in world.questions:
        first, second = (title for title, _ in row["supporting_facts"])
        assert first in row["question"]
        assert second not in row["question"]
        assert second in world.passages[first]
        assert row["answer"] in world.passages[second]
        assert row["answer"] not in row["question"]


def test_no_held_out_question_is_trained_on():
    recipe = MultiHop()
    train, held = recipe.tasks("train", 10**6, 0), recipe.tasks("eval", 10**6, 0)
    assert (len(train), len(held)) == (120, 40)
    asked = [task.extra_info["question"] for task in (*train, *held)]
    assert len(set(asked)) == len(asked)
    shown = {row["prompt"][1]["content"] for row in recipe.demonstrations(300, 0)}
    assert shown <= {task.extra_info["question"] for task in train}
    assert recipe.tasks("train", 5, 1) == recipe.tasks("train", 5, 1) != recipe.tasks("train", 5, 2)
    assert recipe.tasks("eval", 5, 1) == recipe.tasks("eval", 5, 2)


def test_the_recipe_and_its_tool_are_known_by_name():
    plugins = PluginManager.discover()
    assert plugins.get("recipe", "multihop") is MultiHop
    assert plugins.get("tool", "passages").__name__ == "PassageSearch"


@pytest.mark.parametrize(
    ("name", "size", "source"),
    [
        ("hotpotqa/hotpot_distractor_100.jsonl.gz", 100, "hotpotqa"),
        ("hotpotqa/ircot_hotpotqa_29.jsonl.gz", 29, "hotpotqa"),
        ("2wiki/ircot_2wikimultihopqa_20.jsonl.gz", 20, "hotpotqa"),
    ],
)
def test_real_questions(real_data, name, size, source):
    path = real_data(name, f"{size} questions")
    tasks = load(path, "eval")
    assert len(tasks) == size
    with gzip.open(path, "rt") as lines:
        for task, row in zip(tasks, map(json.loads, lines), strict=True):
            assert task.ground_truth == [row["answer"]]
            assert [each["title"] for each in task["passages"]] == [title for title, _ in row["context"]]
            titles = {each["title"] for each in task["passages"]}
            assert set(task.extra_info["supporting"]) <= titles
