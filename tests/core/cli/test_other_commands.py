"""``rollout``, ``plugins``, ``config``, ``doctor``, ``report`` and the frame around them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer
import yaml

from agentr1_core.plugins import PluginManager, hookimpl


def test_rollout_shows_an_episode_and_writes_them_all(agentr1: Any, run_file: Path, tmp_path: Path) -> None:
    said = agentr1("rollout", run_file, "-n", "3")

    assert said.code == 0, said.err
    for part in ("What is the capital of France?", '"name": "shout"', "tool: PARIS", "It is Paris.", "Return 1"):
        assert part in said.out
    kept = (tmp_path / "runs/questions-rollout/trajectories.jsonl").read_text().splitlines()
    assert [json.loads(line)["reward"] for line in kept] == [1.0, 1.0, 1.0]


def test_rollout_of_a_run_folder_plays_its_checkpoint(agentr1: Any, tmp_path: Path) -> None:
    agentr1("train", "capitals", "--algorithm.updates", "1")

    assert agentr1("rollout", "runs/capitals", "-n", "1").code == 0
    config = yaml.safe_load((tmp_path / "runs/capitals-rollout/config.yaml").read_text())
    assert config["model"] == "runs/capitals/checkpoint"


def test_rollout_refuses_a_model_without_a_tokenizer(agentr1: Any, run_file: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    said = agentr1("rollout", run_file, "--model", tmp_path / "empty")

    assert said.code == 1
    assert "the tokenizer of" in said.err


def test_a_model_without_a_chat_template_is_refused(agentr1: Any, run_file: Path, tokenizer: Any) -> None:
    folder = run_file.parent / "base"
    tokenizer.save_pretrained(folder)
    (folder / "chat_template.jinja").unlink()

    said = agentr1("rollout", run_file, "--model", folder)

    assert said.code == 1
    assert "has no chat template" in said.err
    assert "instruct or chat model" in said.err


def test_a_reward_that_is_no_number_names_itself(agentr1: Any, run_file: Path, monkeypatch: Any) -> None:
    (run_file.parent / "my_rewards.py").write_text("def broken(trajectory):\n    return float('nan')\n")

    said = agentr1("rollout", run_file, "-n", "2", "--reward", "my_rewards:broken")

    assert said.code == 1
    assert "Every episode failed. 2 times: Reward 'broken' returned nan." in said.err


def test_a_prompt_longer_than_the_context_says_both_lengths(agentr1: Any, run_file: Path) -> None:
    said = agentr1("rollout", run_file, "-n", "2", "--rollout.max_context", "12")

    assert said.code == 1
    assert "(context_overflow)" in said.err
    assert "and the context 12" in said.err


def test_plugins_lists_offers_and_what_is_broken(agentr1: Any, plugins: PluginManager) -> None:
    from agentr1_core.plugins.discovery import FoundPlugin

    def explode() -> Any:
        raise ImportError("no module named 'acme'")

    plugins.load([FoundPlugin("main", "acme-tools", "1.2.3", "acme", explode)])

    shown = agentr1("plugins").out
    assert "shop" in shown
    assert "recipe: capitals" in shown
    assert "broken: ImportError: no module named 'acme'" in shown

    listed = {each["dist"]: each for each in json.loads(agentr1("plugins", "--json").out)}
    assert listed["acme-tools"]["broken"].startswith("ImportError")
    assert listed["acme-tools"]["version"] == "1.2.3"
    assert "step_grpo" in listed["agentr1"]["offers"]["estimator"]


def test_config_prints_what_can_be_run_again(agentr1: Any, tmp_path: Path) -> None:
    said = agentr1("config", "capitals", "--env.prize", "2", "--backend.step_size=1e-3")

    shown: Mapping[str, Any] = yaml.safe_load(said.out)
    assert shown["env"] == {"name": "riddle", "prize": 2}
    assert shown["backend"] == {"name": "play", "step_size": 0.001}
    assert shown["rollout"]["max_steps"] == 16
    (tmp_path / "again.yaml").write_text(said.out)
    assert agentr1("config", "again.yaml").out == said.out


def test_a_recipe_may_ship_several_run_files(agentr1: Any) -> None:
    assert yaml.safe_load(agentr1("config", "capitals").out)["run"]["name"] == "capitals"
    assert yaml.safe_load(agentr1("config", "capitals/long").out)["run"]["name"] == "long"
    refused = agentr1("config", "capitals/wide")
    assert refused.code == 1
    assert "capitals/short, capitals/long" in " ".join(refused.err.split())


def test_doctor_tells_versions_and_devices(agentr1: Any) -> None:
    from importlib.metadata import version

    found = json.loads(agentr1("doctor", "--json").out)

    assert found["stacks"]["transformers"] == version("transformers")
    assert found["stacks"]["openrlhf"] is None
    assert "devices" in found["devices"]
    assert "pip install" in agentr1("doctor").out


def test_report_is_written_again(agentr1: Any, tmp_path: Path) -> None:
    agentr1("train", "capitals", "--algorithm.updates", "1")
    report = tmp_path / "runs/capitals/report.html"
    report.unlink()

    assert agentr1("report", "runs/capitals").code == 0
    assert report.exists()
    refused = agentr1("report", "runs")
    assert refused.code == 1
    assert "no run folder" in refused.err


def test_a_plugin_may_add_a_command(agentr1: Any, plugins: PluginManager) -> None:
    class Greeter:
        @hookimpl
        def agentr1_cli(self, app: typer.Typer) -> None:
            @app.command()
            def greet(name: str) -> None:
                print(f"hello {name}")

    plugins.register(Greeter(), "greeter")

    assert agentr1("greet", "Ada").out == "hello Ada\n"


def test_wrong_usage_exits_with_two(agentr1: Any) -> None:
    said = agentr1("trian", "capitals")

    assert said.code == 2
    assert "trian" in said.err


def test_the_installed_command_answers() -> None:
    def command(*arguments: str) -> subprocess.CompletedProcess[str]:
        programme = "import sys; from agentr1_core.cli.main import main; sys.exit(main())"
        return subprocess.run(
            [sys.executable, "-c", programme, *arguments], capture_output=True, text=True, timeout=60, check=False
        )

    assert "rollout" in command("--help").stdout
    assert command("--version").stdout.startswith("agentr1 ")
    failed = command("train", "nowhere.yaml")
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("Error: There is no run file or recipe 'nowhere.yaml'.")
