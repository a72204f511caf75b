"""What every tool must do. Subclass ``ToolKit``, say how to make the tool and give calls with good arguments."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import pytest

from agentr1_core.tool import BaseTool, ToolBox, ToolContext, ToolOutcome, ToolResult, call_tool

DEADLINE_S = 60.0


class ToolKit:
    """Checks of the ``BaseTool`` contract. Override ``make_tool`` and ``good_calls``."""

    def make_tool(self) -> BaseTool:
        """The tool, not started."""
        raise NotImplementedError("Override make_tool() in your test class.")

    def good_calls(self) -> Sequence[dict[str, Any]]:
        """Arguments that must work."""
        raise NotImplementedError("Override good_calls() in your test class.")

    def _call(self, *calls: dict[str, Any]) -> list[ToolResult]:
        async def all_of_them() -> list[ToolResult]:
            tool = self.make_tool()
            box = ToolBox([tool])
            await box.start()
            try:
                running = [
                    call_tool(box.by_name, tool.name, arguments, ToolContext(), timeout_s=DEADLINE_S)
                    for arguments in calls
                ]
                return await asyncio.gather(*running)
            finally:
                await box.close()

        return asyncio.run(all_of_them())

    def test_it_describes_itself(self) -> None:
        spec = self.make_tool().spec
        assert spec["name"].isidentifier(), "models call tools by identifiers"
        assert spec["description"].strip(), "a model cannot use a tool that it is told nothing about"
        jsonschema.Draft202012Validator.check_schema(spec["parameters"])
        json.dumps(spec)

    def test_good_calls_work(self) -> None:
        for arguments, result in zip(self.good_calls(), self._call(*self.good_calls()), strict=True):
            assert result.outcome is ToolOutcome.OK, f"{arguments}: {result.response.text}"
            assert isinstance(result.response.text, str)

    def test_many_calls_at_once_do_not_disturb_each_other(self) -> None:
        arguments = self.good_calls()[0]
        outcomes = {result.outcome for result in self._call(*[arguments] * 16)}
        assert outcomes == {ToolOutcome.OK}

    def test_missing_and_unknown_arguments_are_refused(self) -> None:
        parameters = self.make_tool().parameters
        if parameters.get("required"):
            assert self._call({})[0].outcome is ToolOutcome.BAD_ARGUMENTS
        if parameters.get("additionalProperties") is False:
            extra = {**self.good_calls()[0], "no_such_argument": 1}
            assert self._call(extra)[0].outcome is ToolOutcome.BAD_ARGUMENTS

    def test_closing_without_starting_is_harmless(self) -> None:
        asyncio.run(self.make_tool().close())

    def test_wrong_types_never_reach_it(self) -> None:
        properties = self.make_tool().parameters.get("properties", {})
        typed = [name for name, schema in properties.items() if schema.get("type") in {"string", "integer", "number"}]
        if not typed:
            pytest.skip("no argument has a simple type")
        for name in typed:
            result = self._call({**self.good_calls()[0], name: {"nested": []}})[0]
            assert result.outcome is ToolOutcome.BAD_ARGUMENTS
