"""A launch as a process, with small programs in OpenRLHF's place: they do what a launch does when it goes wrong."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agentr1_backend_openrlhf import RUN_VARIABLE
from agentr1_backend_openrlhf.backend import OpenRLHFBackend
from agentr1_backend_openrlhf.command import Launch
from agentr1_backend_openrlhf.events import EVENTS, EventReader, EventWriter, read_success
from agentr1_backend_openrlhf.process import LaunchProcess
from agentr1_core.backend import TrainingJob
from agentr1_core.credit import GRPO
from agentr1_core.engine import SamplingParams
from agentr1_core.episode import RolloutLimits
from agentr1_core.errors import ConfigError, PluginError
from agentr1_core.task import Task

PATIENCE_S = 120


def program(code: str) -> Launch:
    class Program(Launch):
        @property
        def command(self) -> list[str]:
            return [self.python, "-c", code]

    return Program(sys.executable, (), {RUN_VARIABLE: "run.yaml"})


def watch(launch: Launch, log: Path, timeout_s: float = PATIENCE_S) -> None:
    with LaunchProcess(launch, log, timeout_s) as process:
        while process.runs():
            pass
        process.check_success()


def test_output_goes_to_the_log_and_the_environment_arrives(tmp_path: Path) -> None:
    log = tmp_path / "a" / "launch.log"
    watch(program(f"import os; print(os.environ['{RUN_VARIABLE}'])"), log)
    watch(program("print('again')"), log)
    assert log.read_text() == "run.yaml\nagain\n"


def test_an_error_of_agentr1_is_told_alone(tmp_path: Path) -> None:
    told = "Error: `model` is wrong.\\n  -> Name another."
    with pytest.raises(PluginError, match=r"exit code 3") as failed:
        watch(program(f"print('noise'); print('{told}'); import sys; sys.exit(3)"), tmp_path / "log")
    assert "`model` is wrong.\n  -> Name another." in str(failed.value)
    assert "noise" not in str(failed.value)


def test_any_other_failure_shows_the_end_of_the_log(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="ZeroDivisionError"):
        watch(program("1 / 0"), tmp_path / "log")


def test_a_launch_that_never_ends_is_stopped_with_all_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = (
        "import subprocess, sys, time\n"
        "p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(child)!r} + '.part', 'w').write(str(p.pid))\n"
        f"import os; os.rename({str(child)!r} + '.part', {str(child)!r})\n"
        "time.sleep(600)"
    )
    deadline = time.monotonic() + PATIENCE_S

    def launch() -> None:
        with LaunchProcess(program(code), tmp_path / "log", 1.0) as process:
            while not child.is_file():
                assert time.monotonic() < deadline
                time.sleep(0.05)
            while process.runs():
                pass

    with pytest.raises(PluginError, match=r"stopped after 1 seconds"):
        launch()
    pid = int(child.read_text())
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split()[2]:
        assert time.monotonic() < deadline, "the child lives on"
        time.sleep(0.05)


def test_an_interpreter_that_is_not_there_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(PluginError, match=r"no/such/python") as failed,
        LaunchProcess(Launch("no/such/python", (), {}), tmp_path / "log", 1.0),
    ):
        pass
    assert "backend.python" in failed.value.mend


def test_events_are_read_as_they_were_written(tmp_path: Path, group) -> None:
    reader, writer = EventReader(tmp_path / EVENTS), EventWriter(tmp_path / EVENTS)
    assert list(reader.new()) == []
    writer.success("before", 0.25)
    writer.group(group)
    writer.update(1, {"loss": 0.5})
    first, second, third = reader.new()
    assert (first["when"], first["share"]) == ("before", 0.25)
    assert second["value"].trajectories[1].steps[1].action.token_ids.tolist() == [7, 8, 7]
    assert (third["step"], third["metrics"]) == (1, {"loss": 0.5})
    assert list(reader.new()) == []
    writer.close()
    with (tmp_path / EVENTS).open("a") as file:
        file.write('{"event": "upd')
    assert list(reader.new()) == [], "half a line is not an event yet"
    assert list(EventReader(tmp_path / EVENTS).new()) == [], "a new launch begins after what an earlier one wrote"
    assert read_success(tmp_path / EVENTS, "before") == 0.25
    assert read_success(tmp_path / EVENTS, "after") is None


@pytest.fixture
def job(tmp_path: Path) -> TrainingJob:
    (tmp_path / "model").mkdir()
    return TrainingJob(
        model=str(tmp_path / "model"),
        run_dir=tmp_path / "run",
        train_tasks=[Task({"prompt": "1 + 1?"})],
        eval_tasks=[],
        flow=lambda: pytest.fail("a launch plays in processes of its own"),
        reward=None,
        tools=None,
        estimator=GRPO(),
        engine=(type("Engine", (), {"name": "transformers"}), {}),
        limits=RolloutLimits(max_context=64),
        sampling=SamplingParams(max_tokens=8),
        eval_sampling=SamplingParams(max_tokens=8),
        group_size=2,
        prompts_per_update=2,
        updates=2,
        concurrency=4,
        min_group_size=2,
        merge="linear",
        renderer=("auto", {}),
        settings={},
    )


def test_a_job_without_a_run_file_is_refused(job: TrainingJob) -> None:
    with pytest.raises(ConfigError, match=r"no run file .*config\.yaml"):
        OpenRLHFBackend().train(job)


def test_resuming_needs_a_checkpoint(job: TrainingJob) -> None:
    with pytest.raises(ConfigError, match="no checkpoint") as refused:
        OpenRLHFBackend().check(replace(job, resume=True))
    assert "run.save_every" in refused.value.mend


@pytest.fixture
def interpreter(tmp_path: Path) -> Path:
    """Stands for an interpreter: says what a launch says, then trains nothing."""
    folder = tmp_path / "run" / "openrlhf"
    events = [
        {"event": "success", "when": "before", "share": None},
        {"event": "update", "step": 1, "metrics": {"loss": 0.5, "ledger/sampled": 3, "ledger/trained": 3}},
        {"event": "update", "step": 2, "metrics": {"loss": 0.4, "ledger/sampled": 2, "ledger/dropped": 2}},
        {"event": "success", "when": "after", "share": 1.0},
    ]
    lines = "".join(json.dumps(event) + "\n" for event in events)
    script = tmp_path / "python"
    script.write_text(f"#!/bin/sh\ncat >> {folder}/{EVENTS} <<'END'\n{lines}END\n")
    script.chmod(0o755)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.yaml").write_text("{}\n")
    return script


class Observer:
    def __init__(self) -> None:
        self.updates: list[tuple[int, float]] = []

    def agentr1_update(self, *, metrics, step) -> None:
        self.updates.append((step, metrics["loss"]))


def test_what_a_launch_reports_reaches_observers_and_result(job: TrainingJob, interpreter: Path) -> None:
    (job.run_dir / "checkpoint").mkdir()
    (job.run_dir / "checkpoint" / "config.json").write_text("{}")
    observer = Observer()
    result = OpenRLHFBackend().train(replace(job, settings={"python": str(interpreter)}, hooks=observer))

    assert observer.updates == [(1, 0.5), (2, 0.4)]
    assert result.updates == 2
    assert dict(result.ledger) == {"sampled": 5, "trained": 3, "masked": 0, "dropped": 2}
    assert (result.success_before, result.success_after) == (None, 1.0)
    assert (job.run_dir / "openrlhf" / "prompts.jsonl").is_file()


def test_a_launch_without_a_model_is_no_success(job: TrainingJob, interpreter: Path) -> None:
    with pytest.raises(PluginError, match="without a trained model"):
        OpenRLHFBackend().train(replace(job, settings={"python": str(interpreter)}))


def test_a_run_past_its_deadline_leaves_no_launch_behind(job: TrainingJob, interpreter: Path) -> None:
    note = job.run_dir / "pid"
    interpreter.write_text(f"#!/bin/sh\necho $$ > {note}.part; mv {note}.part {note}\nexec sleep 600\n")
    with pytest.raises(PluginError, match="stopped after 2 seconds"):
        OpenRLHFBackend().train(replace(job, settings={"python": str(interpreter), "timeout_s": 2}))
    with pytest.raises(ProcessLookupError):
        os.kill(int(note.read_text()), signal.SIGCONT)
