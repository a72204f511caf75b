"""Whole episodes through a chat endpoint: evaluated, shown, recorded as text alone, and refused wherever it trains."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from agentr1_core.cli.main import main
from agentr1_core.credit import Credit, CreditBatch
from agentr1_core.engine import SamplingParams
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import ChatPolicy, RolloutLimits
from agentr1_core.errors import DataError
from agentr1_core.mdp import StopReason
from agentr1_core.plugins import PluginManager
from agentr1_core.rollout import Rollouts
from agentr1_core.rows import make_rows
from agentr1_core.task import Task
from agentr1_core.tool import tool
from agentr1_core.tool_env import ToolEnv

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 19, "b": 23}'}}
ASKS = {"role": "assistant", "content": "", "tool_calls": [CALL]}
TASK = {"prompt": "What is 19 + 23?", "reward_model": {"ground_truth": "42"}, "data_source": "sums"}


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
def rollouts(engine_of):
    """``rollouts(limits=...)``: a tool environment played through the service."""

    def make(limits=None, sampling=None, **settings):
        policy = ChatPolicy(engine_of(**settings), sampling or SamplingParams(max_tokens=32))
        return Rollouts(AgentEnvLoop(lambda _: ToolEnv([add])), policy, limits=limits, min_group_size=1, seed=0)

    return make


@pytest.fixture
def played(run):
    """``played(rollouts)``: the group of one task."""

    def one(rollouts):
        async def work():
            try:
                return await rollouts.collect([Task(TASK)], training=False)
            finally:
                await rollouts.close()

        return run(work()).groups[0]

    return one


@pytest.fixture
def run_file(tmp_path, service, monkeypatch):
    """A run file that names no model, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [*sys.path])
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps({**TASK, "id": n}) + "\n" for n in range(3)))
    (tmp_path / "adding_tool.py").write_text(
        "from agentr1_core import tool\n\n\n@tool\ndef add(a: int, b: int) -> int:\n"
        '    """Add two numbers."""\n    return a + b\n'
    )
    path = tmp_path / "run.yaml"
    path.write_text(
        f"""\
run: {{name: sums}}
data: {{train: sums.jsonl, eval: sums.jsonl}}
tools: ["adding_tool:add"]
reward: [contains_answer]
sampling: {{max_tokens: 32}}
rollout: {{concurrency: 1}}
engine: {{name: openai, base_url: "{service.url}", model: tiny}}
"""
    )
    return path


def test_an_episode_with_tools(service, rollouts, played):
    service.answers = [ASKS, "It is 42."]

    (trajectory,) = played(rollouts()).trajectories

    first, last = trajectory.steps
    assert trajectory.stop_reason is StopReason.TERMINATED
    assert first.feedback[0]["content"] == "42"
    assert last.action.text == "It is 42."
    assert service.bodies[1]["messages"] == [
        {"role": "user", "content": "What is 19 + 23?"},
        ASKS,
        {"role": "tool", "tool_call_id": "c1", "content": "42"},
    ]
    assert service.bodies[0]["tools"][0]["function"]["name"] == "add"
    assert service.bodies[0]["seed"] != service.bodies[1]["seed"]
    assert (trajectory.n_tokens, trajectory.n_sampled) == (14, 0)
    assert [step.n_prompt for step in trajectory.steps] == [11, 11]
    assert not trajectory.is_trainable
    assert first.observation.prompt_ids is None


def test_rows_and_credit_refuse_it(service, rollouts, played):
    group = played(rollouts())

    for refuse in (
        lambda: CreditBatch.from_groups([group]),
        lambda: make_rows([group], Credit(np.zeros(0, dtype=np.float32))),
    ):
        with pytest.raises(DataError, match="its tokens are not known"):
            refuse()


def test_limits_are_kept(service, rollouts, played):
    service.answers = [ASKS]

    (steps,) = played(rollouts(RolloutLimits(max_steps=2))).trajectories
    assert (steps.stop_reason, len(steps.steps)) == (StopReason.MAX_STEPS, 2)
    (budget,) = played(rollouts(RolloutLimits(max_tokens_per_episode=10))).trajectories
    assert budget.stop_reason is StopReason.TOKEN_BUDGET  # after two replies of 7 tokens, the second cut to 3
    assert [body["max_tokens"] for body in service.bodies[-2:]] == [10, 3]


def test_a_budget_that_nobody_counts_is_an_error(service, rollouts, run):
    service.answers = [{"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}]
    playing = rollouts(RolloutLimits(max_tokens_per_episode=10))

    async def work():
        try:
            await playing.start()
            return await playing.play(Task(TASK), "g")
        finally:
            await playing.close()

    trajectory = run(work())
    assert trajectory.stop_reason is StopReason.ENGINE_ERROR
    assert "max_tokens_per_episode cannot be kept" in trajectory.error


def test_a_full_context_ends_the_episode_and_fails_none(service, rollouts, played):
    service.answers = [ASKS, (400, {"error": {"message": "long", "code": "context_length_exceeded"}}, {})]

    (trajectory,) = played(rollouts()).trajectories

    assert trajectory.stop_reason is StopReason.CONTEXT_OVERFLOW
    assert trajectory.steps[-1].truncated
    assert "engine/faults" not in trajectory.counters


def test_a_service_that_fails_fails_the_episode_once(service, rollouts, run):
    service.answers = [(500, {"error": {"message": "broken"}}, {})]
    playing = rollouts(retries=1)

    async def work():
        try:
            await playing.start()
            return await playing.play(Task(TASK), "g")
        finally:
            await playing.close()

    trajectory = run(work())
    assert trajectory.stop_reason is StopReason.ENGINE_ERROR
    assert "HTTP 500: broken" in trajectory.error
    assert len(service.asked) == 2  # the engine's own retry, not multiplied by the episode's


def test_eval_and_rollout_play_it(service, run_file, capsys):
    plugins = PluginManager.discover()
    service.answers = [ASKS, "It is 42.", "It is 41.", "It is 42."]

    assert main(["eval", str(run_file), "--json"], plugins) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["model"], told["engine"], told["attempts"]) == ("tiny", "openai", 3)
    assert told["rates"]["success"]["value"] == pytest.approx(2 / 3)
    assert told["means"]["tokens"]["value"] == pytest.approx(28 / 3)
    assert told["means"]["prompt_tokens"]["value"] == pytest.approx(44 / 3)
    kept = (run_file.parent / "runs/sums-eval/trajectories.jsonl").read_text().splitlines()
    assert {json.loads(line)["trainable"] for line in kept} == {False}

    service.answers = [ASKS, "It is 42."]
    assert main(["rollout", str(run_file), "-n", "1"], plugins) == 0
    shown = capsys.readouterr().out
    assert "saw 11 tokens" in shown
    assert "sampled 7 tokens, stop" in shown
    assert '{"name": "add", "arguments": {"a": 19, "b": 23}}' in shown

    assert main(["report", "runs/sums-eval"], plugins) == 0
    page = (run_file.parent / "runs/sums-eval/report.html").read_text()
    assert "Evaluation of &#39;eval&#39;: 3 episodes of 3 tasks" in page
    assert "{&#34;name&#34;: &#34;add&#34;" in page


def test_training_with_it_is_refused_at_the_start(run_file, capsys):
    assert main(["train", str(run_file), "--model", "anything"], PluginManager.discover()) == 1

    assert "'openai' answers in text, without the token ids that training needs" in " ".join(
        capsys.readouterr().err.split()
    )
    assert not (run_file.parent / "runs/sums").exists()


def test_a_refused_model_fails_every_episode_by_name(service, run_file, capsys):
    service.answers = [(404, {"error": {"message": "no such model"}}, {})]

    assert main(["eval", str(run_file)], PluginManager.discover()) == 1
    told = " ".join(capsys.readouterr().out.split())
    assert f"3 times: {service.url}, model 'tiny': not found (HTTP 404): no such model" in told


def test_a_refused_key_leaves_no_folder(service, run_file, capsys):
    service.models = (401, {"error": {"message": "bad key"}}, {})

    assert main(["eval", str(run_file)], PluginManager.discover()) == 1
    assert "access is refused (HTTP 401)" in capsys.readouterr().err
    assert not (run_file.parent / "runs/sums-eval").exists()


def test_token_ids_to_stop_at_are_refused(run_file, capsys):
    assert main(["eval", str(run_file), "--sampling.stop_token_ids", "[5]"], PluginManager.discover()) == 1

    assert "sampling.stop_token_ids" in capsys.readouterr().err


def test_it_needs_neither_torch_nor_transformers(service, run_file):
    service.answers = ["It is 42."]
    programme = """
import sys

from agentr1_core.cli.main import main

code = main(["eval", "run.yaml"])
print([name for name in ("torch", "transformers", "tokenizers", "renderers", "datasets") if name in sys.modules])
sys.exit(code)
"""
    done = subprocess.run(
        [sys.executable, "-c", programme], cwd=run_file.parent, capture_output=True, text=True, check=False, timeout=300
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 episodes of 3 tasks" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"
