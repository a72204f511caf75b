"""What a launch tells, read while it is written and after a launch that was killed in the middle of a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentr1_backend_openrlhf.events import EventReader, EventWriter


def steps(reader: EventReader) -> list[int]:
    return [event["step"] for event in reader.new()]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The events of a launch that told of one update and was killed while it told of the second."""
    path = tmp_path / "events.jsonl"
    writer = EventWriter(path)
    writer.update(1, {"reward": 0.5})
    writer.close()
    with path.open("a", encoding="utf-8") as file:
        file.write('{"event": "update", "st')
    return path


def test_a_line_that_was_never_finished_spoils_none_of_the_next_launch(killed: Path) -> None:
    following = EventReader(killed)
    writer = EventWriter(killed)
    writer.update(2, {})

    assert steps(following) == [2]
    writer.update(3, {})
    writer.close()
    assert steps(following) == [3]
    assert steps(EventReader(killed, from_start=True)) == [1, 2, 3]
