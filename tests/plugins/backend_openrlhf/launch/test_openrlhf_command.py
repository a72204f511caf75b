"""``agentr1 openrlhf-command`` and the example run files: the folder it makes, and the command it prints."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml

from agentr1_backend_openrlhf import AGENT_FILE, RUN_VARIABLE
from agentr1_backend_openrlhf.command.launch import PROGRAMME, Launch
from agentr1_backend_openrlhf.command.options import shipped_options
from agentr1_backend_openrlhf.prompts import read_label
from agentr1_backend_openrlhf.train import with_agent
from agentr1_core.cli.main import main
from agentr1_core.config import load_config
from agentr1_core.job import build_job
from agentr1_core.plugins import PluginManager

OPTIONS = shipped_options()
EXAMPLES = Path(__file__).parents[4] / "examples" / "gpu"
RUN = """
run: {name: sums}
model: some/model
data: {train: rows.jsonl, eval_size: 2}
tools: [calculator]
reward: [math_answer]
algorithm: {group_size: 2, prompts_per_update: 4, updates: 3}
sampling: {max_tokens: 16}
rollout: {max_context: 128}
engine: openrlhf
backend: {name: openrlhf, actor.adam.lr: 1e-5}
"""


@pytest.fixture
def run_file(tmp_path, monkeypatch):
    """A run file with data beside it, in the working folder."""
    monkeypatch.chdir(tmp_path)
    rows = [{"prompt": f"{n} + 1 = ?", "answer": str(n + 1)} for n in range(6)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "run.yaml").write_text(RUN)
    return "run.yaml"


def read_by_shell(text):
    """The words of a command, as ``sh`` makes them."""
    script = f"set -- {text}\nprintf '%s\\0' \"$@\""
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def printed(capsys):
    """Environment, interpreter and arguments as a shell would read them."""
    words = read_by_shell(capsys.readouterr().out)
    env = dict(word.split("=", 1) for word in words if word.startswith(RUN_VARIABLE))
    rest = words[len(env) :]
    assert rest[1:3] == ["-m", PROGRAMME]
    return env, rest[0], rest[3:]


def test_the_printed_command_can_be_pasted(run_file, tmp_path, capsys, parse):
    assert main(["openrlhf-command", run_file]) == 0

    env, _, arguments = printed(capsys)
    found = parse(OPTIONS, arguments)
    folder = tmp_path / "runs" / "sums"
    assert env == {RUN_VARIABLE: str(folder / "config.yaml")}
    assert yaml.safe_load((folder / "config.yaml").read_text())["algorithm"]["updates"] == 3
    assert (found["actor.adam.lr"], found["rollout.batch_size"], found["rollout.n_samples_per_prompt"]) == (1e-5, 4, 2)
    assert found["ckpt.output_dir"] == str(folder / "checkpoint")
    prompts = [json.loads(line) for line in Path(found["data.prompt_dataset"]).read_text().splitlines()]
    tasks = [read_label(line[found["data.input_key"]], line[found["data.label_key"]])[0] for line in prompts]
    assert len(tasks) == 12
    assert {task["answer"] for task in tasks} == {"1", "2", "3", "4"}  # the last two are held out
    assert len(Path(found["eval.dataset"]).read_text().splitlines()) == 2


def test_overrides_and_another_interpreter(run_file, tmp_path, capsys):
    assert (
        main(["openrlhf-command", run_file, "--backend.python", "/opt/openrlhf/bin/python", "--run-dir", "here"]) == 0
    )

    env, python, _ = printed(capsys)
    assert python == "/opt/openrlhf/bin/python"
    assert env[RUN_VARIABLE] == str(tmp_path / "here" / "config.yaml")


def test_a_run_is_resumed_from_its_checkpoint(run_file, tmp_path, capsys, parse):
    assert main(["openrlhf-command", run_file, "--run-dir", "here"]) == 0
    assert not parse(OPTIONS, printed(capsys)[2])["ckpt.load_enable"]

    assert main(["openrlhf-command", run_file, "--run-dir", "here", "--resume"]) == 1
    assert "There is no checkpoint of OpenRLHF" in capsys.readouterr().err

    (tmp_path / "here" / "trainer" / "_actor").mkdir(parents=True)
    assert main(["openrlhf-command", run_file, "--run-dir", "here", "--resume"]) == 0
    found = parse(OPTIONS, printed(capsys)[2])
    assert found["ckpt.load_enable"]
    assert found["ckpt.path"] == str(tmp_path / "here" / "trainer")


def test_a_job_for_a_ray_cluster_carries_the_variable(run_file, tmp_path, capsys):
    assert main(["openrlhf-command", run_file, "--submit", "http://head:8265"]) == 0

    words = read_by_shell(capsys.readouterr().out)
    assert words[:4] == ["ray", "job", "submit", "--address=http://head:8265"]
    runtime = json.loads(words[4].removeprefix("--runtime-env-json="))
    assert runtime == {"env_vars": {RUN_VARIABLE: str(tmp_path / "runs" / "sums" / "config.yaml")}}
    assert words[5] == "--"
    assert words[7:9] == ["-m", PROGRAMME]


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        (["--backend", "{name: trl}"], "backend 'trl', which is not launched by OpenRLHF"),
        (["--backend.ds.zero_stag", "3"], "Did you mean `backend.ds.zero_stage`?"),
        (["--engine", "vlm"], "Did you mean 'vllm'?"),
        (["--algorithm.merge", "tree"], "does not support merge 'tree'"),
    ],
)
def test_a_wrong_run_file_leaves_no_folder(run_file, tmp_path, capsys, extra, said):
    assert main(["openrlhf-command", run_file, *extra]) == 1

    assert said in capsys.readouterr().err
    assert not (tmp_path / "runs" / "sums").exists()


def test_the_command_is_in_the_help(capsys):
    assert main(["--help"]) == 0
    assert "openrlhf-command" in capsys.readouterr().out


def test_a_shell_reads_the_command_as_it_is():
    arguments = ("--ds.packing_samples", "--logger.wandb.group", 'it\'s "so" $HOME', "--ckpt.save_steps=-1")
    launch = Launch("python 3", arguments, {RUN_VARIABLE: "/a b/config.yaml"})

    words = read_by_shell(launch.as_shell())

    assert words == [f"{RUN_VARIABLE}=/a b/config.yaml", "python 3", "-m", PROGRAMME, *arguments]
    assert launch.as_shell().splitlines()[2] == "  --ds.packing_samples \\"


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("openrlhf_*gpu*.yaml")), ids=lambda path: path.stem)
def test_the_examples_become_commands(example, tmp_path, monkeypatch, capsys, parse):
    monkeypatch.chdir(tmp_path)

    assert main(["openrlhf-command", str(example), "--data.train_size", "8"]) == 0

    found = parse(OPTIONS, printed(capsys)[2])
    assert found["train.agent_func_path"].endswith("agent.py")


def test_an_existing_script_starts_the_step_trainer_with_options_that_are_known(tmp_path, parse):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nprintf \'%s\\0\' "${RUN_VARIABLE}" "$@" > {tmp_path / "words"}\n')
    python.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name != RUN_VARIABLE}

    script = EXAMPLES / "openrlhf_existing_script.sh"
    subprocess.run([script], env={**environment, "PATH": path}, check=True)

    run_file, *words = (tmp_path / "words").read_text().split("\0")[:-1]
    assert run_file == "examples/gpu/openrlhf_existing_script.yaml"
    assert words[:2] == ["-m", PROGRAMME]
    found = parse(OPTIONS, with_agent(words[2:]))
    said = load_config(EXAMPLES / "openrlhf_existing_script.yaml")
    assert found["train.agent_func_path"] == str(AGENT_FILE)
    assert found["rollout.temperature"] == said.sampling.temperature
    assert found["rollout.top_p"] == said.sampling.top_p
    assert found["rollout.max_new_tokens"] == said.sampling.max_tokens
    assert found["data.max_len"] == said.rollout.max_context


def test_an_agent_that_a_launch_names_is_kept():
    assert with_agent(["--train.agent_func_path", "mine.py"]) == ["--train.agent_func_path", "mine.py"]
    assert with_agent(["--train.agent_func_path=mine.py"]) == ["--train.agent_func_path=mine.py"]


def test_the_run_file_for_trl_and_vllm_builds_a_job(tmp_path):
    plugins = PluginManager.discover()
    config = load_config(EXAMPLES / "trl_vllm_2gpu.yaml", [("data.train_size", "8")], plugins)

    job = build_job(config, plugins, tmp_path)

    assert (job.engine[0].name, job.model) == ("vllm", "Qwen/Qwen3-0.6B")
