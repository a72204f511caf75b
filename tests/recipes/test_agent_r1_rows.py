"""Parquet files as Agent-R1 writes them, played by the run files that are made for them."""

import json

import datasets
import pytest

from agentr1_core.config import load_config
from agentr1_core.job import build_job
from agentr1_core.plugins import PluginManager
from agentr1_core.testing import call, play
from agentr1_recipes.gsm8k.reward import gsm8k_strict
from agentr1_tools.qa import qa_sub_em

PLUGINS = PluginManager.discover()
GSM8K = {
    "data_source": "openai/gsm8k",
    "agent_name": "agent_env_loop",
    "prompt": [{"role": "system", "content": "You are a math expert."}, {"role": "user", "content": "1 + 1?"}],
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "2"},
    "extra_info": {"split": "train", "index": 0, "answer": "#### 2", "question": "1 + 1?"},
    "env_kwargs": json.dumps(
        {
            "env_type": "tool",
            "tools": ["calc_gsm8k_reward"],
            "tool_format": "hermes",
            "tools_kwargs": {"ground_truth": "2"},
        }
    ),
}
HOTPOTQA = {
    "data_source": "hotpotqa/hotpot_qa",
    "agent_name": "hotpotqa_agent",
    "prompt": [{"role": "user", "content": "On which river was Ada born?"}],
    "ability": "multihop_qa",
    "reward_model": {"style": "rule", "ground_truth": "Isk"},
    "extra_info": {"index": 0},
}


@pytest.fixture
def job(tmp_path):
    """``job("gsm8k/agent-r1", row)``: the run file's job on parquet files of such rows."""

    def build(run_file, row):
        for split in ("train", "test"):
            datasets.Dataset.from_list([row] * 2).to_parquet(tmp_path / f"{split}.parquet")
        config = load_config(run_file, [("recipe.data", str(tmp_path)), ("engine", "transformers")], PLUGINS)
        return build_job(config, PLUGINS, tmp_path / "run")

    return build


def test_gsm8k_rows_call_their_tool(job):
    made = job("gsm8k/agent-r1", GSM8K)
    assert (len(made.train_tasks), len(made.eval_tasks)) == (2, 2)
    answers = [call("calc_gsm8k_reward", answer="3"), call("calc_gsm8k_reward", answer="2"), "#### 2"]
    trajectory = play(made.flow(), made.train_tasks[0], answers)
    assert trajectory.steps[0].observation.messages[0]["content"] == "You are a math expert."
    assert [step.feedback[0]["content"] for step in trajectory.steps[:2]] == ["Wrong.", "Right."]
    assert gsm8k_strict(trajectory) == 1.0


def test_hotpotqa_rows_are_played_by_the_tool_environment(job):
    made = job("multihop/agent-r1", HOTPOTQA)
    trajectory = play(made.flow(), made.train_tasks[0], ["<answer>the Isk</answer>"])
    (step,) = trajectory.steps
    assert [message["role"] for message in step.observation.messages] == ["system", "user"]
    assert [tool["name"] for tool in step.observation.tools] == ["search"]
    assert qa_sub_em(trajectory) == 1.0
