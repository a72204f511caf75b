"""``agentr1 openrlhf-report``: a run's figures from what a launch left in its folder."""

from __future__ import annotations

import json

import pytest

from agentr1_backend_openrlhf.events import EVENTS, EventWriter
from agentr1_core.cli.main import main
from agentr1_core.config import dump
from agentr1_core.config.load import check_config
from agentr1_core.run_folder import RunFolder

LEDGER = {"ledger/sampled": 10, "ledger/trained": 7, "ledger/masked": 1, "ledger/dropped": 2}


@pytest.fixture
def folder(tmp_path):
    """The folder that ``openrlhf-command`` would have made."""
    config = check_config({"model": "some/model", "algorithm": {"updates": 2}, "backend": "openrlhf"})
    (tmp_path / "config.yaml").write_text(dump(config))
    return RunFolder(tmp_path)


def told(folder, group, *, n_updates):
    writer = EventWriter(folder.path / "openrlhf" / EVENTS)
    writer.success("before", 0.25)
    for update in range(1, n_updates + 1):
        writer.group(group)
        writer.update(update, {"loss": 0.5 * update, **LEDGER})
    return writer


def test_a_launch_that_goes_on_is_reported_as_far_as_it_is(folder, group, capsys):
    told(folder, group, n_updates=1).close()

    assert main(["openrlhf-report", str(folder.path)]) == 0

    assert "1 of 2 updates; the run goes on" in capsys.readouterr().out
    (row,) = folder.read_metrics()
    assert (row["update"], row["loss"]) == (1, 0.5)
    assert row["seconds"] >= 0
    assert [row["group"] for row in folder.read_trajectories()] == ["g", "g"]
    assert folder.report.is_file()
    assert not folder.summary.is_file()


def test_a_launch_that_has_ended_has_a_summary_and_can_be_read_twice(folder, group, capsys):
    writer = told(folder, group, n_updates=2)
    writer.success("after", 0.75)
    writer.close()
    (folder.path / "checkpoint").mkdir()
    (folder.path / "checkpoint" / "config.json").write_text("{}")

    assert main(["openrlhf-report", str(folder.path)]) == 0
    assert main(["openrlhf-report", str(folder.path)]) == 0

    assert "2 of 2 updates; the run ended" in capsys.readouterr().out
    assert [row["update"] for row in folder.read_metrics()] == [1, 2]
    assert len(folder.read_trajectories()) == 4
    summary = folder.read_summary()
    assert (summary["success_before"], summary["success_after"], summary["updates"]) == (0.25, 0.75, 2)
    assert summary["ledger"] == {"sampled": 20, "trained": 14, "masked": 2, "dropped": 4}


def test_an_update_that_a_resumed_launch_played_again_counts_once(folder, group):
    told(folder, group, n_updates=2).close()
    writer = EventWriter(folder.path / "openrlhf" / EVENTS)
    writer.update(2, {"loss": 9.0, **LEDGER})
    writer.success("after", None)
    writer.close()
    (folder.path / "checkpoint").mkdir()
    (folder.path / "checkpoint" / "config.json").write_text("{}")

    assert main(["openrlhf-report", str(folder.path)]) == 0

    assert [row["loss"] for row in folder.read_metrics()] == [0.5, 9.0]
    assert folder.read_summary()["ledger"]["sampled"] == 20


def test_a_half_written_line_is_left_for_the_next_time(folder, group):
    told(folder, group, n_updates=1).close()
    with (folder.path / "openrlhf" / EVENTS).open("a") as file:
        file.write(json.dumps({"event": "update", "step": 2})[:12])

    assert main(["openrlhf-report", str(folder.path)]) == 0

    assert len(folder.read_metrics()) == 1


def test_a_folder_without_a_launch_is_told(tmp_path, capsys):
    assert main(["openrlhf-report", str(tmp_path)]) == 1

    assert "No OpenRLHF launch has told anything" in capsys.readouterr().err
