"""``agentr1 train`` from the run file to the report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agentr1_core.errors import AgentR1Error
from agentr1_core.plugins import PluginManager, hookimpl


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_recipe_trains_and_leaves_a_run_folder(agentr1: Any, tmp_path: Path) -> None:
    said = agentr1("train", "capitals")

    assert said.code == 0, said.err
    folder = tmp_path / "runs" / "capitals"
    names = {entry.name for entry in folder.iterdir()}
    assert names >= {"config.yaml", "metrics.jsonl", "trajectories.jsonl", "summary.json", "report.html", "checkpoint"}
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["success_before"], summary["success_after"], summary["updates"]) == (1.0, 1.0, 3)
    assert set(summary["ledger"]) == {"sampled", "trained", "masked", "dropped"}
    assert [row["update"] for row in lines(folder / "metrics.jsonl")] == [1, 2, 3]
    assert "1.000 before, 1.000 after" in said.out
    assert "report.html" in said.out


def test_a_data_set_with_tools_and_a_reward_trains(agentr1: Any, run_file: Path, tmp_path: Path) -> None:
    said = agentr1("train", run_file)

    assert said.code == 0, said.err
    kept = lines(tmp_path / "runs/questions/trajectories.jsonl")
    first = kept[0]
    assert [step["tool_calls"] for step in first["steps"]] == [[{"name": "shout", "arguments": {"text": "paris"}}], []]
    assert first["steps"][0]["feedback"][0]["content"] == "PARIS"
    assert first["rewards"] == {"contains_answer": 1.0}
    assert len(first["steps"][0]["token_ids"]) == len(first["steps"][0]["logprobs"])
    assert {(row["phase"], row["update"]) for row in kept} == {("eval", 0), ("train", 1), ("train", 2)}


def test_dotted_overrides_win_and_are_typed(agentr1: Any, tmp_path: Path) -> None:
    said = agentr1("train", "capitals", "--algorithm.updates", "1", "--env.prize=0.5", "--run.name", "short")

    assert said.code == 0, said.err
    (metrics,) = lines(tmp_path / "runs/short/metrics.jsonl")
    assert metrics["reward"] == 0.5


def test_a_second_run_gets_a_number(agentr1: Any, tmp_path: Path) -> None:
    agentr1("train", "capitals", "--algorithm.updates", "1")
    agentr1("train", "capitals", "--algorithm.updates", "1")

    assert {entry.name for entry in (tmp_path / "runs").iterdir()} == {"capitals", "capitals-2"}


def test_a_folder_in_use_is_not_written_over_unless_told(agentr1: Any, tmp_path: Path) -> None:
    run = ("train", "capitals", "--run-dir", tmp_path / "mine", "--algorithm.updates", "1")
    assert agentr1(*run).code == 0

    refused = agentr1(*run)
    assert refused.code == 1
    assert "is not empty" in refused.err
    assert "--overwrite" in refused.err

    assert agentr1(*run, "--overwrite").code == 0
    assert len(lines(tmp_path / "mine/metrics.jsonl")) == 1


def test_resume_goes_on_in_the_newest_folder(agentr1: Any, tmp_path: Path) -> None:
    assert "no run to resume" in agentr1("train", "capitals", "--resume").err

    agentr1("train", "capitals", "--algorithm.updates", "1")
    assert agentr1("train", "capitals", "--algorithm.updates", "2", "--resume").code == 0
    assert {entry.name for entry in (tmp_path / "runs").iterdir()} == {"capitals"}
    assert "updates: 2" in (tmp_path / "runs/capitals/config.yaml").read_text()
    assert len(lines(tmp_path / "runs/capitals/metrics.jsonl")) == 3


def test_the_ledger_of_a_resumed_run_counts_the_updates_before_it(agentr1: Any, tmp_path: Path) -> None:
    def sampled() -> int:
        return int(json.loads((tmp_path / "runs/capitals/summary.json").read_text())["ledger"]["sampled"])

    agentr1("train", "capitals", "--algorithm.updates", "3")
    whole = sampled()
    agentr1("train", "capitals", "--algorithm.updates", "1", "--resume")

    assert sampled() == whole


def test_a_run_folder_can_be_run_again(agentr1: Any, tmp_path: Path) -> None:
    agentr1("train", "capitals", "--algorithm.updates", "1")

    assert agentr1("train", "runs/capitals").code == 0
    assert (tmp_path / "runs/capitals-2/config.yaml").read_text() == (
        tmp_path / "runs/capitals/config.yaml"
    ).read_text()


def test_ctrl_c_keeps_and_reports_what_there_is(agentr1: Any, tmp_path: Path) -> None:
    said = agentr1("train", "capitals", "--backend.interrupt_at", "2")

    assert said.code == 130
    assert "Interrupted." in said.err
    assert "Traceback" not in said.err
    folder = tmp_path / "runs/capitals"
    assert len(lines(folder / "metrics.jsonl")) == 1
    assert "not finished" in (folder / "report.html").read_text()
    assert not (folder / "summary.json").exists()


def test_group_size_one_is_allowed_with_a_caution(agentr1: Any) -> None:
    said = agentr1("train", "capitals", "--algorithm.group_size", "1", "--algorithm.updates", "1")

    assert said.code == 0, said.err
    assert "every advantage is 0 and nothing is learned" in said.out


def test_only_the_first_of_several_processes_writes(
    agentr1: Any, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    run = ("train", "capitals", "--algorithm.updates", "1", "--model", model_folder, "--warm_start.when", "never")
    assert "needs one folder for all of them" in agentr1(*run).err

    monkeypatch.setenv("RANK", "1")
    assert agentr1(*run, "--run-dir", tmp_path / "shared").code == 0
    assert not (tmp_path / "shared/metrics.jsonl").exists()
    refused = agentr1(*run, "--run-dir", tmp_path / "shared", "--model", "recipe")
    assert "several processes would do at once" in refused.err

    monkeypatch.setenv("RANK", "0")
    assert agentr1(*run, "--run-dir", tmp_path / "shared", "--overwrite").code == 0
    assert len(lines(tmp_path / "shared/metrics.jsonl")) == 1


@pytest.mark.parametrize(
    ("arguments", "problem", "mend"),
    [
        (["nowhere.yaml"], "no run file or recipe 'nowhere.yaml'", "recipes: capitals"),
        (["capitols"], "no run file or recipe 'capitols'", "Did you mean 'capitals'?"),
        (["capitals", "--env", "riddel"], "No plugin offers the env 'riddel'", "'riddle'"),
        (["capitals", "--engine", "parrott"], "No plugin offers the engine 'parrott'", "'parrot'"),
        (["capitals", "--engine", "vlm"], "No plugin offers the engine 'vlm'", "'vllm'? Install it: pip install"),
        (["capitals", "--engine", "openrlhf"], "No plugin offers the engine 'openrlhf'", "'agentr1[openrlhf]'"),
        (["capitals", "--backend", "plai"], "No plugin offers the backend 'plai'", "'play'"),
        (["capitals", "--tools", "[shuot]", "--env", "tools"], "No plugin offers the tool 'shuot'", "'shout'"),
        (["capitals", "--reward", "exact_matsch"], "No plugin offers the reward 'exact_matsch'", "'exact_match'"),
        (["capitals", "--algorithm.estimator", "gpro"], "No plugin offers the estimator 'gpro'", "grpo"),
        (["capitals", "--algorithm.estimator.epz", "1"], "setting 'epz'", "truncated, eps"),
        (["capitals", "--env.prise", "2"], "Riddle has no setting 'prise'", "`prize`"),
        (["capitals", "--engine.loudnes", "2"], "unknown key 'engine.loudnes'", "`engine.loudness`"),
        (["capitals", "--backend.step_size", "big"], "'backend.step_size' is 'big'; expected a number", "Mend"),
        (["capitals", "--tools", "shout"], "the env 'riddle' takes none", "`env: tools`"),
        (["capitals", "--algorithm.updates", "five"], "'algorithm.updates' is 'five'; expected a whole number", "Mend"),
        (["capitals", "--algorithm.updats", "5"], "unknown key 'algorithm.updats'", "`algorithm.updates`"),
        (["capitals", "--updates", "5"], "unknown key 'updates'", "`algorithm.updates`"),
        (["capitals", "--data.train", "riddles.jsonl"], "no data file 'riddles.jsonl'", "questions.jsonl"),
        (["capitals", "--recipe", "null"], "names no tasks", "`data.train`"),
        (["capitals", "--model", "null"], "names no model", "--model"),
        (["capitals", "--model", "./models/qwen"], "no folder './models/qwen'", "hub id"),
        (["capitals", "--algorithm.merge", "tree"], "Backend 'play' does not support merge 'tree'", "linear, none"),
        (["capitals", "--flow", "single_step"], "both env 'riddle' and flow 'single_step'", "Keep one"),
        (["capitals", "--context", "keep_last", "--context.k", "0"], "KeepLast refuses its settings", "`context`"),
        (["capitals", "--warm_start.when", "sometimes"], "expected one of scratch, always, never", "Mend"),
        (["capitals", "quickstart"], "Name one run file or recipe; 2 were given", "agentr1 train"),
        (["--algorithm.updates", "5"], "Name one run file or recipe; none was given", "agentr1 train"),
    ],
)
def test_bad_input_is_one_clear_error(
    agentr1: Any, questions: Path, tmp_path: Path, arguments: list[str], problem: str, mend: str
) -> None:
    said = agentr1("train", *arguments)

    assert said.code == 1
    assert problem in said.err
    assert mend in said.err.partition("->")[2]
    assert "Traceback" not in said.err
    assert not list((tmp_path / "runs").glob("*")), "nothing half-made is left behind"


def test_a_row_that_names_an_unknown_environment_needs_the_run_files_word(agentr1: Any, run_file: Path) -> None:
    questions = run_file.parent / "questions.jsonl"
    rows = [json.loads(line) | {"agent_name": "riddles"} for line in questions.read_text().splitlines()]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))

    refused = agentr1("train", run_file)
    assert refused.code == 1
    assert "questions.jsonl row 0: no environment or flow is named 'riddles'" in refused.err

    assert agentr1("train", run_file, "--env", "tools").code == 0


def test_an_observer_that_fails_is_named(agentr1: Any, plugins: PluginManager) -> None:
    class Nosy:
        @hookimpl
        def agentr1_trajectory(self, trajectory: Any) -> None:
            raise KeyError("no such column")

    plugins.register(Nosy(), "nosy")

    said = agentr1("train", "capitals", "--algorithm.updates", "1")

    assert said.code == 1
    assert "nosy" in said.err
    assert "no such column" in said.err


def test_debug_shows_where_an_error_comes_from(agentr1: Any) -> None:
    with pytest.raises(AgentR1Error, match="no run file or recipe"):
        agentr1("--debug", "train", "nowhere.yaml")


def test_a_fault_of_the_trainer_is_not_dressed_up(agentr1: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the trainer broke"):
        agentr1("train", "capitals", "--backend.fail_at", "2")
    assert (tmp_path / "runs/capitals/report.html").exists()
