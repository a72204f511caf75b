"""The first-party tools pass the conformance kit."""

import json

import pytest

from agentr1_core.testing.tool_kit import ToolKit
from agentr1_tools.calculator import Calculator
from agentr1_tools.search import Search


class TestCalculatorConforms(ToolKit):
    def make_tool(self):
        return Calculator()

    def good_calls(self):
        return [{"expression": "(3 + 4) * 5"}, {"expression": "sqrt(2)"}, {"expression": "2 ** 1000"}]


class TestSearchConforms(ToolKit):
    @pytest.fixture(autouse=True, scope="class")
    def _corpus(self, request, tmp_path_factory):
        request.cls.corpus = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
        passages = [{"id": n, "title": f"Passage {n}", "text": f"The number {n} and the engine."} for n in range(200)]
        request.cls.corpus.write_text("\n".join(map(json.dumps, passages)), encoding="utf-8")

    def make_tool(self):
        return Search(self.corpus)

    def good_calls(self):
        return [{"query": "the engine"}, {"query": "number 7"}, {"query": ""}]
