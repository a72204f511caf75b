"""``agentr1 eval``: what it plays, what it says, what it keeps, and how it goes on."""

from __future__ import annotations

import csv
import json
import multiprocessing
from pathlib import Path
from typing import Any

import pytest
import yaml

MOODY = """\
import os
import signal
from pathlib import Path

from agentr1_core import AgentEnv


class Moody(AgentEnv):
    \"\"\"Raises for odd tasks while there is a file named ``down``; half of the kinds are solved.\"\"\"

    async def reset(self, task):
        self.index = task["index"]
        with Path("played.txt").open("a") as played:
            played.write(f"{self.index} ")
        if self.index == 2 and Path("interrupt").exists():
            Path("interrupt").unlink()
            os.kill(os.getpid(), signal.SIGINT)
        if self.index % 2 and Path("down").exists():
            raise OSError("the game server is down")
        return "Say it."

    async def step(self, action):
        solved = self.index < 2
        info = {"em": float(solved), "f1": 0.5, "note": "text", "success": solved}
        return None, 1.0, True, False, info
"""


@pytest.fixture
def moody(tmp_path: Path, model_folder: Path) -> Path:
    """A run file for four tasks of two kinds, two of which can fail."""
    (tmp_path / "moody.py").write_text(MOODY)
    rows = [{"index": i, "id": f"task-{i}", "data_source": "easy" if i < 2 else "hard"} for i in range(4)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = tmp_path / "moody.yaml"
    path.write_text(
        f"""\
run: {{name: moody}}
model: {model_folder}
data: {{train: tasks.jsonl, eval: tasks.jsonl, eval_size: 1}}
env: "moody:Moody"
engine: parrot
"""
    )
    return path


def summary_of(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "summary.json").read_text()))


def results_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "results.jsonl").read_text().splitlines()]


def test_it_plays_every_held_out_task_and_keeps_it_all(agentr1: Any, moody: Path, tmp_path: Path) -> None:
    said = agentr1("eval", moody)

    assert said.code == 0, said.err
    folder = tmp_path / "runs/moody-eval"
    told = summary_of(folder)
    assert (told["tasks"], told["attempts"], told["failed"]) == (4, 4, 0)  # all tasks, and not just data.eval_size
    # Success is what training reports: info["success"] where given, and not the return.
    assert told["rates"]["success"]["value"] == 0.5
    assert told["means"]["reward"]["value"] == 1.0
    assert told["means"]["info/em"]["value"] == 0.5
    assert told["means"]["info/f1"]["value"] == 0.5
    assert "info/note" not in told["means"]
    assert told["group_by"] == "data_source"
    assert {name: group["rates"]["success"]["value"] for name, group in told["groups"].items()} == {
        "easy": 1.0,
        "hard": 0.0,
    }
    assert told["stop_reasons"] == {"terminated": 4}
    for part in ("success", "0.500", "easy", "hard", "terminated 4", "95% interval"):
        assert part in said.out
    first = results_of(folder)[0]
    assert {"task", "attempt", "success", "return", "steps", "tokens", "stop_reason", "rewards", "info"} <= first.keys()
    assert len((folder / "trajectories.jsonl").read_text().splitlines()) == 4
    with (folder / "tasks.csv").open() as file:
        table = list(csv.DictReader(file))
    assert [row["name"] for row in table] == ["task-2", "task-3", "task-0", "task-1"]  # the hardest first
    assert table[2]["success"] == "1.0"
    assert agentr1("report", folder).code == 0
    page = (folder / "report.html").read_text()
    assert "By data_source" in page
    assert "<td>easy</td><td>2</td><td>2</td><td>0</td><td>1.000</td>" in page
    assert yaml.safe_load((folder / "config.yaml").read_text())["run"]["name"] == "moody-eval"


def test_several_attempts_give_pass_at_k_as_json(agentr1: Any, moody: Path, tmp_path: Path) -> None:
    said = agentr1("eval", moody, "-k", "3", "--limit", "3", "--json", "--no-trajectories")

    told = json.loads(said.out)  # nothing else is on standard output
    assert (told["tasks"], told["attempts"], told["k"]) == (3, 9, 3)
    assert set(told["rates"]) == {"success", "pass@1", "pass@2", "pass@3", "pass^2", "pass^3"}
    assert told["rates"]["pass@1"]["value"] == told["rates"]["success"]["value"] == pytest.approx(2 / 3)
    assert told == summary_of(tmp_path / "runs/moody-eval")
    assert not (tmp_path / "runs/moody-eval/trajectories.jsonl").exists()


def test_failed_episodes_are_counted_named_and_played_again(agentr1: Any, moody: Path, tmp_path: Path) -> None:
    (tmp_path / "down").touch()

    said = agentr1("eval", moody)

    assert said.code == 1
    assert "2 episodes failed" in said.out
    assert "2 times: OSError: the game server is down" in said.out
    told = summary_of(tmp_path / "runs/moody-eval")
    assert (told["tasks"], told["attempts"], told["failed"]) == (4, 2, 2)
    assert told["rates"]["success"]["value"] == 0.5  # of tasks 0 and 2
    assert told["success_if_failed_count"] == 0.25

    (tmp_path / "down").unlink()
    (tmp_path / "played.txt").unlink()
    again = agentr1("eval", moody, "--resume")

    assert again.code == 0, again.err
    assert sorted((tmp_path / "played.txt").read_text().split()) == ["1", "3"]
    assert "2 are there already" in again.out
    told = summary_of(tmp_path / "runs/moody-eval")
    assert (told["attempts"], told["failed"], told["rates"]["success"]["value"]) == (4, 0, 0.5)


def test_when_every_episode_fails_it_says_so(agentr1: Any, moody: Path, tmp_path: Path) -> None:
    said = agentr1("eval", moody, "--env", "moody:Nobody")
    assert said.code == 1
    assert "Nobody" in said.err
    assert not (tmp_path / "runs").exists() or not any((tmp_path / "runs").iterdir())  # no half-made folder

    rows = [{"index": 1}, {"index": 3}]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "down").touch()
    said = agentr1("eval", moody)
    assert said.code == 1
    assert summary_of(tmp_path / "runs/moody-eval")["rates"] == {}


def test_more_tasks_and_attempts_are_added_to_what_is_there(agentr1: Any, moody: Path, tmp_path: Path) -> None:
    agentr1("eval", moody, "--limit", "2")
    before = results_of(tmp_path / "runs/moody-eval")
    (tmp_path / "played.txt").unlink()

    assert agentr1("eval", moody, "--resume", "-k", "2").code == 0

    assert sorted((tmp_path / "played.txt").read_text().split()) == ["0", "1", "2", "2", "3", "3"]
    after = results_of(tmp_path / "runs/moody-eval")
    assert after[:2] == before
    assert len({(row["task"], row["attempt"]) for row in after}) == len(after) == 8
    # Fewer than there are: the summary is of what this call asked for.
    agentr1("eval", moody, "--resume", "--limit", "1")
    assert summary_of(tmp_path / "runs/moody-eval")["attempts"] == 1


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (("--run.seed", "5"), "seed was 0 and is 5"),
        (("--evaluation.sampling.temperature", "0.5"), "evaluation.sampling.temperature was not set and is 0.5"),
        (("--rollout.max_steps", "3"), "rollout.max_steps was 16 and is 3"),
    ],
)
def test_another_evaluation_is_not_resumed(
    agentr1: Any, moody: Path, tmp_path: Path, change: tuple[str, str], told: str
) -> None:
    agentr1("eval", moody, "--limit", "1")
    config = (tmp_path / "runs/moody-eval/config.yaml").read_text()

    refused = agentr1("eval", moody, "--resume", *change)

    assert refused.code == 1
    assert told in refused.err
    assert (tmp_path / "runs/moody-eval/config.yaml").read_text() == config
    assert agentr1("eval", moody, "--resume", "--rollout.concurrency", "2").code == 0


def test_a_model_that_was_trained_on_is_another_model(
    agentr1: Any, moody: Path, model_folder: Path, tmp_path: Path
) -> None:
    import shutil

    for name in ("a", "b"):
        shutil.copytree(model_folder, tmp_path / name)
        (tmp_path / name / "model.safetensors").write_bytes(b"weights" * 2_000_000)
    agentr1("eval", moody, "--limit", "1", "--model", "a")
    moved = agentr1("eval", moody, "--limit", "1", "--model", "b", "--resume")
    assert moved.code == 0, moved.err  # the same content under another name

    weights = bytearray((tmp_path / "a/model.safetensors").read_bytes())
    for place in range(0, len(weights), 1000):  # an update changes weights everywhere
        weights[place] ^= 1
    (tmp_path / "a/model.safetensors").write_bytes(weights)
    refused = agentr1("eval", moody, "--limit", "1", "--model", "a", "--resume")
    assert refused.code == 1
    assert "model was 'folder with content" in refused.err


def test_a_line_that_was_cut_off_is_played_again(agentr1: Any, moody: Path, tmp_path: Path) -> None:
    agentr1("eval", moody)
    results = tmp_path / "runs/moody-eval/results.jsonl"
    whole = results.read_bytes()
    results.write_bytes(whole[:-30])
    (tmp_path / "played.txt").unlink()

    assert agentr1("eval", moody, "--resume").code == 0
    assert len((tmp_path / "played.txt").read_text().split()) == 1
    assert len(results_of(tmp_path / "runs/moody-eval")) == 4


def test_ctrl_c_keeps_what_was_finished(agentr1: Any, moody: Path, tmp_path: Path) -> None:
    (tmp_path / "interrupt").touch()

    stopped = agentr1("eval", moody, "--rollout.concurrency", "1")

    assert stopped.code == 130
    assert len(results_of(tmp_path / "runs/moody-eval")) == 2
    (tmp_path / "played.txt").unlink()
    assert agentr1("eval", moody, "--resume").code == 0
    assert (tmp_path / "played.txt").read_text().split() == ["2", "3"]


def _hold(path: str, ready: Any, done: Any) -> None:
    from agentr1_core.evaluation import EvaluationFolder
    from agentr1_core.run_folder import RunFolder

    with EvaluationFolder(RunFolder(Path(path))):
        ready.set()
        done.wait(60)


@pytest.mark.parametrize("option", ["--resume", "--overwrite"])
def test_two_processes_do_not_play_into_one_folder(agentr1: Any, moody: Path, tmp_path: Path, option: str) -> None:
    agentr1("eval", moody, "--limit", "1")
    spawn = multiprocessing.get_context("spawn")
    ready, done = spawn.Event(), spawn.Event()
    other = spawn.Process(target=_hold, args=(str(tmp_path / "runs/moody-eval"), ready, done), daemon=True)
    other.start()
    try:
        assert ready.wait(60)
        refused = agentr1("eval", moody, option)
    finally:
        done.set()
        other.join(60)

    assert refused.code == 1
    assert len((tmp_path / "runs/moody-eval/results.jsonl").read_text().splitlines()) == 1
    assert "Another process is playing" in refused.err


def test_splits_of_a_data_set(agentr1: Any, moody: Path, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    for number, split in enumerate(("train", "valid_seen", "valid_unseen")):
        rows = [{"index": i} for i in range(number + 1)]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    of_folder = ("--data.train", str(folder), "--data.eval", str(folder), "--json")

    for split, n_tasks in (("valid_seen", 2), ("valid_unseen", 3), ("train", 1)):
        assert json.loads(agentr1("eval", moody, "--split", split, *of_folder).out)["tasks"] == n_tasks
    refused = agentr1("eval", moody, "--split", "valid", *of_folder)
    assert refused.code == 1
    assert "Say one of: train, eval, valid_seen, valid_unseen." in refused.err
    assert "which the data set" in agentr1("eval", moody, "--split", "test").err


def test_a_saved_data_set_knows_its_splits(tmp_path: Path) -> None:
    import datasets

    from agentr1_core.dataset import split_names

    rows = datasets.Dataset.from_list([{"index": 1}])
    datasets.DatasetDict({"train": rows, "hard": rows}).save_to_disk(str(tmp_path / "saved"))
    rows.save_to_disk(str(tmp_path / "alone"))
    rows.to_json(str(tmp_path / "file.jsonl"))
    (tmp_path / "shards").mkdir()
    for name in ("test-00000-of-00002", "test-00001-of-00002", "dev"):
        rows.to_parquet(str(tmp_path / "shards" / f"{name}.parquet"))

    assert split_names(tmp_path / "saved") == ("train", "hard")
    assert split_names(tmp_path / "alone") == split_names(tmp_path / "file.jsonl") == ()
    assert set(split_names(tmp_path / "shards")) == {"test", "dev"}


def test_held_out_rows_are_those_of_training(agentr1: Any, run_file: Path) -> None:
    held_out = json.loads(agentr1("eval", run_file, "--json").out)
    trained_on = json.loads(agentr1("eval", run_file, "--json", "--split", "train").out)

    assert (held_out["tasks"], trained_on["tasks"]) == (2, 4)  # six rows, eval_size 2
    assert held_out["means"]["rewards/contains_answer"]["value"] == 1.0
    refused = agentr1("eval", run_file, "--data.eval_size", "0")
    assert refused.code == 1
    assert "no held-out tasks" in refused.err


def test_splits_of_a_recipe(agentr1: Any, plugins: Any) -> None:
    recipe = plugins.get("recipe", "capitals")
    recipe.splits = ("train", "eval", "valid_seen")

    endless = agentr1("eval", "capitals", "--split", "valid_seen")
    assert endless.code == 0, endless.err
    assert "does not say how many tasks 'valid_seen' has: 2 are played" in endless.out
    recipe.n_tasks = lambda self, split: 3
    assert json.loads(agentr1("eval", "capitals", "--split", "valid_seen", "--json").out)["tasks"] == 3
    refused = agentr1("eval", "capitals", "--split", "valid_unseen")
    assert refused.code == 1
    assert "Say one of: train, eval, valid_seen." in refused.err


def test_of_a_run_folder_the_checkpoint_is_evaluated(agentr1: Any, tmp_path: Path) -> None:
    agentr1("train", "capitals", "--algorithm.updates", "1")

    told = json.loads(agentr1("eval", "runs/capitals", "--json").out)

    trained = json.loads((tmp_path / "runs/capitals/summary.json").read_text())
    assert told["model"] == "runs/capitals/checkpoint"
    assert told["rates"]["success"]["value"] == trained["success_after"]


def test_a_run_folder_without_a_checkpoint_is_cautioned_against(agentr1: Any, tmp_path: Path) -> None:
    import shutil

    agentr1("train", "capitals", "--algorithm.updates", "1")
    shutil.rmtree(tmp_path / "runs/capitals/checkpoint")

    assert "'runs/capitals' has no checkpoint" in agentr1("eval", "runs/capitals").out


def test_groups_are_those_of_a_column_that_is_there(agentr1: Any, moody: Path, tmp_path: Path) -> None:
    told = json.loads(agentr1("eval", moody, "--group-by", "id", "--json").out)
    assert sorted(told["groups"]) == ["task-0", "task-1", "task-2", "task-3"]

    refused = agentr1("eval", moody, "--group-by", "colour", "--run-dir", tmp_path / "colours")
    assert refused.code == 1
    assert "Tasks have: index, id, data_source." in refused.err
    assert not (tmp_path / "colours").exists()


def test_many_greedy_attempts_are_cautioned_against(agentr1: Any, moody: Path) -> None:
    said = agentr1("eval", moody, "-k", "2", "--limit", "1", "--evaluation.sampling.temperature", "0")

    assert "all 2 attempts at a task will be alike" in said.out


def test_an_attempt_is_sampled_alike_in_any_company(
    plugins: Any, moody: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """Its seed follows from the task's content and its number, not from how many others there are."""
    from agentr1_core.blocking import BlockingLoop
    from agentr1_core.config import load_config
    from agentr1_core.job import build_evaluation

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    seeds = []
    for limit in (4, 2):
        job = build_evaluation(load_config(moody, [], plugins), plugins, tmp_path, limit=limit, k=2)
        key = list(job.tasks)[1]
        loop = BlockingLoop()
        try:
            loop.run(job.rollouts.collect_plays([job.play(key, 1)], training=False))
        finally:
            loop.run(job.rollouts.close())
            loop.close()
        seeds.append(job.rollouts.policy.engine.calls[0].seed)

    assert seeds[0] == seeds[1] is not None


@pytest.mark.parametrize("how", ["--resume", "--overwrite"])
def test_the_folder_of_another_run_is_left_alone(agentr1: Any, tmp_path: Path, how: str) -> None:
    agentr1("train", "capitals", "--algorithm.updates", "1")
    before = {file: file.read_bytes() for file in (tmp_path / "runs/capitals").rglob("*") if file.is_file()}

    refused = agentr1("eval", "runs/capitals", "--run-dir", "runs/capitals", how)

    assert refused.code == 1
    assert "holds something else than an evaluation" in refused.err
    assert {file: file.read_bytes() for file in (tmp_path / "runs/capitals").rglob("*") if file.is_file()} == before


def test_an_evaluation_is_replaced_when_asked(agentr1: Any, moody: Path, tmp_path: Path) -> None:
    agentr1("eval", moody)
    assert agentr1("eval", moody, "--overwrite", "--run.seed", "4", "--limit", "1").code == 0

    assert len(results_of(tmp_path / "runs/moody-eval")) == 1
    assert not (tmp_path / "runs/moody-eval-2").exists()


def test_nothing_to_resume(agentr1: Any, moody: Path) -> None:
    refused = agentr1("eval", moody, "--resume")

    assert refused.code == 1
    assert "There is no run to resume" in refused.err
