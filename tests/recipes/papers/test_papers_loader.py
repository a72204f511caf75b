"""Papers and questions from files, and the corpus that is made up."""

import gzip
import json

import pytest

from agentr1_core.errors import DataError
from agentr1_recipes.papers.corpus import Corpus, Paper
from agentr1_recipes.papers.invented import invent
from agentr1_recipes.papers.loader import citation_questions, open_corpus, read_questions
from agentr1_recipes.papers.recipe import Papers
from agentr1_recipes.papers.selector import GoldSelector, LexicalSelector

ROWS = [
    {"id": "A", "title": "Bees in winter", "abstract": "They cluster.", "year": 2001, "references": ["B", "Z", "B"]},
    {
        "id": "https://openalex.org/B",
        "title": "Apis colonies",
        "abstract_inverted_index": {"keep": [1], "Bees": [0, 3], "warm": [2]},
        "publication_year": 1999,
        "referenced_works": ["https://openalex.org/A"],
    },
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with gzip.open(tmp_path / "papers.jsonl.gz", "wt") as lines:
        lines.writelines(json.dumps(row) + "\n" for row in ROWS)
    questions = [{"qid": "1", "question": "Who?", "answer_ids": ["A"]}, {"question": "How?", "answer_arxiv_id": ["B"]}]
    (tmp_path / "queries.jsonl").write_text("\n".join(map(json.dumps, questions)))
    return tmp_path


def test_papers_are_read_plain_and_as_openalex_serves_them(folder):
    corpus = open_corpus(str(folder))
    assert corpus.by_id["B"] == Paper("B", "Apis colonies", "Bees keep warm Bees", 1999, ("A",))
    assert [paper.id for paper in corpus.references("A")] == ["B"]
    assert corpus.references("A", hidden={"B"}) == []
    assert [paper.id for paper in corpus.search("bee", 5)] == ["B", "A"]
    assert [paper.id for paper in corpus.search("bee", 5, hidden={"B"})] == ["A"]
    assert corpus.search("zebra", 5) == []
    assert [(question.text, question.answers) for question in read_questions(folder)] == [
        ("Who?", ("A",)),
        ("How?", ("B",)),
    ]
    (question,) = citation_questions(corpus, fewest=1)[:1]
    assert (question.text, question.answers, question.hidden) == ("Bees in winter", ("B",), ("A",))


def test_questions_of_a_folder_become_tasks(folder):
    recipe = Papers(str(folder))
    (first, second) = recipe.tasks("train", 9, 0)
    assert {first["question"], second["question"]} == {"Who?", "How?"}
    assert first["corpus"] == str(folder)
    mixed = Papers(str(folder), questions="mixed")
    assert [task["question"] for split in ("eval", "test") for task in mixed.tasks(split, 9, 0)] in (
        ["Who?", "How?"],
        ["How?", "Who?"],
    )


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("papers.jsonl", '{"title": "x"}', r"papers.jsonl line 1: a paper without `id`"),
        ("papers.jsonl", "{", r"papers.jsonl line 1 is not JSON"),
        ("papers.jsonl", "[]", r"papers.jsonl line 1 is not an object"),
        ("queries.jsonl", '{"question": "x"}', r"queries.jsonl line 1: a row without `question` or `answer_ids`"),
    ],
)
def test_what_cannot_be_read_is_told_with_its_line(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(DataError, match=message):
        open_corpus(str(tmp_path)) if name == "papers.jsonl" else read_questions(tmp_path)
    with pytest.raises(DataError, match=r"There is no papers.jsonl"):
        open_corpus(str(tmp_path / "nowhere"))


def test_the_invented_corpus_hides_most_answers_behind_references():
    invented = invent()
    assert invented == invent(0) != invent(1)
    assert (len(invented.papers), len(invented.questions)) == (864, 96)
    corpus = open_corpus(None)
    for question in invented.questions:
        found = {paper.id for paper in corpus.search(question.text, 20)}
        answers = set(question.answers)
        assert 4 <= len(found & answers) < 9
        cited = {paper.id for name in found for paper in corpus.references(name)}
        assert answers <= found | cited


def test_selectors():
    corpus = Corpus([Paper("A", "red bees"), Paper("B", "bees"), Paper("C", "cold ice", "bees")])
    lexical = LexicalSelector(corpus)
    everything = Paper("new", "a red bee on cold ice")
    assert lexical.score("bees", corpus.by_id["A"]) == lexical.score("a bee!", corpus.by_id["B"]) == 1.0
    assert 0.5 < lexical.score("red bees", everything) <= 1.0
    assert lexical.score("red bees", corpus.by_id["B"]) < 0.5  # the rarer word weighs more
    assert lexical.score("unheard of", corpus.by_id["B"]) == 0.0
    assert [GoldSelector({"A"}).score("?", paper) for paper in corpus.papers] == [1.0, 0.0, 0.0]
