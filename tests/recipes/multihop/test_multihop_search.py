"""The passages tool over each kind of corpus, the index on disk, and recall on real questions."""

import asyncio
import bz2
import gzip
import json

import pytest

from agentr1_core.errors import ConfigError, DataError, PluginError
from agentr1_core.testing.tool_kit import ToolKit
from agentr1_core.tool import ToolContext, ToolOutcome, call_tool
from agentr1_recipes.multihop import wiki_index
from agentr1_recipes.multihop.loader import load
from agentr1_recipes.multihop.tools import PassageSearch
from agentr1_recipes.multihop.wiki_index import WikiIndex, build, main, read_passages
from agentr1_recipes.multihop.world import make_world
from agentr1_tools.search import Passage

PASSAGES = [
    Passage("1", "Ada Lovelace", "She wrote the first programme for the Analytical Engine."),
    Passage("2", "Charles Babbage", "He designed the Analytical Engine and the Difference Engine."),
    Passage("3", "Marie Curie", "She discovered polonium and radium."),
]
ROW = {"passages": [{"id": each.id, "title": each.title, "text": each.text} for each in PASSAGES]}
FOUND = {"results": ["Marie Curie She discovered polonium and radium."]}


def ask(tool, query, row=ROW):
    async def run():
        await tool.start()
        try:
            return await call_tool({"search": tool}, "search", {"query": query}, ToolContext(row))
        finally:
            await tool.close()

    return asyncio.run(run())


class TestOwnWorld(ToolKit):
    def make_tool(self):
        return PassageSearch(cache="")

    def good_calls(self):
        return [{"query": "Boris Sorel"}, {"query": "the river Isk"}]


class TestRow(ToolKit):
    def make_tool(self):
        return PassageSearch("row")

    def good_calls(self):
        return [{"query": "polonium"}, {"query": "Engine"}]

    def context(self):
        return ToolContext(ROW)


@pytest.fixture
def index(tmp_path):
    pytest.importorskip("tantivy")
    assert build(PASSAGES, tmp_path / "index") == 3
    return tmp_path / "index"


def test_the_passages_of_each_row():
    assert json.loads(ask(PassageSearch("row"), "Who discovered polonium?").response.text) == FOUND
    result = ask(PassageSearch("row", top_k=1, show="list"), "Difference Engine")
    assert result.response.text.startswith("[1] Charles Babbage\n")
    result = ask(PassageSearch("row"), "polonium", row={"prompt": "Who?"})
    assert result.outcome is ToolOutcome.CRASHED
    assert "The row has no passages to search in" in result.response.text


def test_an_index_on_disk(index):
    tool = PassageSearch(str(index))
    assert json.loads(ask(tool, "Who discovered polonium?").response.text) == FOUND
    assert ask(tool, "discovering").response.info["ids"] == ("3",)  # words are stemmed
    assert json.loads(ask(tool, '+polonium:( ] -"').response.text) == FOUND  # nothing is an operator
    assert json.loads(ask(tool, "?!").response.text) == {"results": []}
    assert len(WikiIndex(index)) == 3


def test_in_the_own_world_a_title_finds_its_passage():
    passages = make_world().passages

    async def find():
        tool = PassageSearch("own", top_k=1, cache="")
        await tool.start()
        found = [(await tool.execute({"query": title}, ToolContext())).info["ids"] for title in passages]
        await tool.close()
        return found

    assert asyncio.run(find()) == [(title,) for title in passages]


def test_a_file(tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in ROW["passages"]))
    assert json.loads(ask(PassageSearch(str(path), cache=""), "polonium").response.text) == FOUND


def test_settings_that_do_not_fit_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="`corpus: row` takes no cache"):
        PassageSearch("row", cache="")
    with pytest.raises(ConfigError, match="takes no mode, model"):
        PassageSearch(str(tmp_path), mode="dense", model="minilm")


def test_a_folder_that_is_no_index(tmp_path):
    pytest.importorskip("tantivy")
    with pytest.raises(DataError, match="holds no search index"):
        ask(PassageSearch(str(tmp_path)), "polonium")


def test_without_tantivy_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "tantivy", None)
    with pytest.raises(PluginError) as caught:
        build(PASSAGES, tmp_path / "index")
    assert "agentr1-recipes[multihop]" in caught.value.mend


def test_passages_are_read_in_every_format(tmp_path):
    folder = tmp_path / "dump"
    (folder / "AA").mkdir(parents=True)
    rows = [
        {"id": 12, "title": "Ada", "text": ["She wrote.", " She sailed."], "url": "x"},
        {"id": "0", "contents": '"Oxley"\nA town.'},
        {"title": "Isk", "text": "A river."},
    ]
    with bz2.open(folder / "AA" / "wiki_00.bz2", "wt") as file:
        file.write(json.dumps(rows[0]) + "\n")
    with gzip.open(folder / "AA" / "wiki_01.jsonl.gz", "wt") as file:
        file.write(json.dumps(rows[1]) + "\n\n")
    (folder / "more.jsonl").write_text(json.dumps(rows[2]) + "\n")
    assert list(read_passages(folder)) == [
        Passage("12", "Ada", "She wrote. She sailed."),
        Passage("0", "Oxley", "A town."),
        Passage("2", "Isk", "A river."),
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [("{", "line 2: not JSON"), ("[]", "line 2: not an object"), ('{"title": "x"}', "neither `text` nor `contents`")],
)
def test_a_bad_line_is_named_and_leaves_nothing(tmp_path, line, problem, capsys):
    pytest.importorskip("tantivy")
    path = tmp_path / "passages.jsonl"
    path.write_text('{"title": "Ada", "text": "She wrote."}\n' + line + "\n")
    assert main([str(path), str(tmp_path / "index")]) == 1
    assert problem in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["passages.jsonl"]


def test_the_command(tmp_path, capsys):
    pytest.importorskip("tantivy")
    path, index = tmp_path / "passages.jsonl", tmp_path / "new" / "index"
    path.write_text('{"title": "Ada", "text": "She wrote."}\n')
    assert main([str(path), str(index)]) == 0
    assert capsys.readouterr().out.startswith("1 passages in ")
    assert WikiIndex(index).search("who wrote", 5)[0][0].title == "Ada"
    assert main([str(path), str(index)]) == 1  # it is never overwritten
    assert "exists" in capsys.readouterr().err
    assert main([str(tmp_path / "missing"), str(tmp_path / "other")]) == 1
    assert main([]) == 2
    assert wiki_index.__doc__


def recall(tasks, search):
    """Mean share of a question's gold passages in the first five, and share of questions with all of them."""
    shares, all_found = [], 0
    for task in tasks:
        gold = set(task.extra_info["supporting"])
        found = gold & set(search(task.extra_info["question"]))
        shares.append(len(found) / len(gold))
        all_found += found == gold
    return sum(shares) / len(tasks), all_found / len(tasks)


def test_recall_on_real_questions(real_data, tmp_path):
    """In memory and on disk, over the 1,000 passages of 100 hard questions; plain bm25s gives .745 and .51."""
    path = real_data("hotpotqa/hotpot_distractor_100.jsonl.gz", "100 questions, 1,000 passages")
    tasks = load(path, "eval")
    passages = {each["title"]: each for task in tasks for each in task["passages"]}
    assert len(passages) == 1000
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(each) + "\n" for each in passages.values()))

    async def in_memory():
        tool = PassageSearch(str(corpus), cache="")
        await tool.start()
        found = {}
        for task in tasks:
            question = task.extra_info["question"]
            found[question] = (await tool.execute({"query": question}, ToolContext())).info["ids"]
        await tool.close()
        return found

    found = asyncio.run(in_memory())
    share, both = recall(tasks, lambda question: found[question])
    assert (share, both) == (pytest.approx(0.745, abs=0.03), pytest.approx(0.51, abs=0.04))

    pytest.importorskip("tantivy")
    build(read_passages(corpus), tmp_path / "index")
    on_disk = WikiIndex(tmp_path / "index")
    share, both = recall(tasks, lambda question: [each.id for each, _ in on_disk.search(question, 5)])
    assert (share, both) == (pytest.approx(0.75, abs=0.04), pytest.approx(0.51, abs=0.06))


def test_2wiki_corpus(real_data, tmp_path):
    """6,119 real passages, indexed on disk and each found by its title and first words."""
    pytest.importorskip("tantivy")
    path = real_data("2wiki/2wikimultihopqa_corpus.json.gz", "6,119 passages")
    passages = [
        Passage(str(number), each["title"], each["text"])
        for number, each in enumerate(json.loads(gzip.decompress(path.read_bytes())))
    ]
    assert build(passages, tmp_path / "index") == 6119
    index = WikiIndex(tmp_path / "index")
    sample = passages[::61]
    first = sum(index.search(f"{each.title} {each.text[:80]}", 1)[0][0].id == each.id for each in sample)
    assert first / len(sample) > 0.95
