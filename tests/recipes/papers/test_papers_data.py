"""Paper search on the SYNERGY extract from OpenAlex (CC0), read from the folder that AGENTR1_DATA names."""

import os
from pathlib import Path

import pytest

from agentr1_core.testing import play
from agentr1_recipes.papers.env import PaperSearchEnv
from agentr1_recipes.papers.loader import citation_questions, open_corpus, read_questions
from agentr1_recipes.papers.oracle import expert, search_then_expand
from agentr1_recipes.papers.recipe import Papers
from agentr1_recipes.papers.reward import paper_recall

DATA = Path(os.environ.get("AGENTR1_DATA", "")) / "papers"
pytestmark = pytest.mark.skipif(
    not (DATA / "queries.jsonl").is_file(), reason="AGENTR1_DATA names no folder with papers/queries.jsonl"
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    cache = str(tmp_path_factory.mktemp("cache"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", cache)
        return open_corpus(str(DATA))


def test_all_of_it_is_read(corpus, real_data):
    edges = sum(len(corpus.references(paper.id)) for paper in corpus.papers)
    made = citation_questions(corpus)
    own = read_questions(DATA)
    real_data("papers", f"{len(corpus):,} papers, {edges:,} citations, {len(own)} reviews")
    assert len(corpus) == 7233
    assert sum(bool(paper.abstract) for paper in corpus.papers) == 6937
    assert sum(reference in corpus.by_id for paper in corpus.papers for reference in paper.references) == 20306
    assert edges == 20286  # without papers that cite themselves or another twice
    assert len(own) == 9
    assert len(made) == 1526  # one of the 1,527 papers with 5 to 60 references has its fifth in itself
    assert all(answer in corpus.by_id for question in own for answer in question.answers)


@pytest.mark.parametrize(
    ("question", "after_search", "after_expansion"),
    [("Oud_2018", 0.00, 0.85), ("Donners_2021", 0.40, 0.87), ("Chou_2004", 0.11, 0.33)],
)
def test_one_expansion_of_what_a_search_finds(corpus, question, after_search, after_expansion):
    """Twenty papers from one search, then all of them expanded."""
    (asked,) = [each for each in read_questions(DATA) if each.id == question]
    task = {"question": asked.text, "answers": asked.answers, "corpus": str(DATA)}
    env = PaperSearchEnv(max_parallel=20, pool_size=20)
    played = play(env, task, lambda shown: search_then_expand(shown, width=20))
    assert played.steps[0].info["recall"] == pytest.approx(after_search, abs=0.005)
    assert paper_recall(played) == pytest.approx(after_expansion, abs=0.005)


def test_the_expert_finds_more_than_the_careful_player_within_the_limits(corpus):
    tasks = [task for split in ("eval", "test") for task in Papers(str(DATA), questions="mixed").tasks(split, 9, 0)]
    assert len(tasks) == 9
    better = 0
    for task in tasks:
        careful = play(PaperSearchEnv(), task, search_then_expand)
        best = play(PaperSearchEnv(), task, expert(corpus, task["answers"]))
        assert best.ret >= careful.ret - 1e-9
        better += paper_recall(best) > paper_recall(careful)
    assert better >= 3


def test_the_paper_a_question_was_made_from_is_not_found(corpus):
    (task,) = Papers(str(DATA), questions="citations").tasks("train", 1, 0)
    (hidden,) = task["hidden"]
    played = play(PaperSearchEnv(), task, search_then_expand)
    assert all(f"[{hidden}]" not in step.observation.messages[-1]["content"] for step in played.steps)
