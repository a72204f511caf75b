"""A task: one row of a data set, as an environment and a reward see it.

Rows with the de-facto columns ``prompt``, ``data_source``, ``ability``, ``reward_model``, ``extra_info``,
``agent_name``, ``env_kwargs`` and ``tools_kwargs`` load unchanged; every other column stays reachable by name.
Nothing here interprets a column beyond giving it a typed accessor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentr1_core.errors import DataError
from agentr1_core.mdp import Message


class Task(Mapping[str, Any]):
    """One row. Read any column with ``task["column"]``; the known ones also as attributes.

    Args:
        row: Column names to values.
        where: Names the row in error messages, for example ``"train.jsonl row 3"``.

    Raises:
        DataError: A known column has a shape that cannot be used.
    """

    __slots__ = ("_row", "where")

    def __init__(self, row: Mapping[str, Any], where: str = "the task") -> None:
        self._row = dict(row)
        self.where = where

    def __getitem__(self, column: str) -> Any:
        return self._row[column]

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def __repr__(self) -> str:
        return f"Task({self._row!r})"

    @property
    def prompt(self) -> tuple[Message, ...]:
        """The opening messages; a plain string counts as one user message, no column as none."""
        value = self._row.get("prompt")
        if value is None:
            return ()
        if isinstance(value, str):
            return ({"role": "user", "content": value},)
        messages = list(value)
        for position, message in enumerate(messages):
            if not isinstance(message, Mapping) or "role" not in message or "content" not in message:
                raise DataError(
                    f"{self.where}: column 'prompt' has no role and content in message {position}: {message!r}.",
                    "Give a list of {'role': ..., 'content': ...} messages, or one string.",
                )
        # Arrow fills columns that only some messages have with None.
        return tuple({key: part for key, part in message.items() if part is not None} for message in messages)

    @property
    def data_source(self) -> str | None:
        """Which data set the row comes from; rewards may depend on it."""
        return self._row.get("data_source")

    @property
    def agent_name(self) -> str | None:
        """Which flow or environment plays this row, when a data set mixes several."""
        return self._row.get("agent_name")

    @property
    def ground_truth(self) -> Any:
        """``reward_model["ground_truth"]``, or the column ``ground_truth`` or ``answer``; ``None`` without one."""
        style = self._mapping("reward_model")
        if "ground_truth" in style:
            return style["ground_truth"]
        return self._row.get("ground_truth", self._row.get("answer"))

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment; a mapping or the same as a JSON string."""
        return self._mapping("env_kwargs")

    @property
    def tools_kwargs(self) -> dict[str, Any]:
        """Arguments of each tool by the tool's name; a mapping or the same as a JSON string."""
        return self._mapping("tools_kwargs")

    @property
    def extra_info(self) -> dict[str, Any]:
        """Whatever else the data set carries; a mapping or the same as a JSON string."""
        return self._mapping("extra_info")

    def _mapping(self, column: str) -> dict[str, Any]:
        value = self._row.get(column)
        if value is None or value == "":
            return {}
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except json.JSONDecodeError as error:
                raise DataError(
                    f"{self.where}: column '{column}' is a string but not JSON ({error}).",
                    "Store a mapping, or its JSON text.",
                ) from error
        if not isinstance(value, Mapping):
            raise DataError(
                f"{self.where}: column '{column}' is a {type(value).__name__}, not a mapping.",
                "Store a mapping, or its JSON text.",
            )
        return {key: part for key, part in value.items() if part is not None}
