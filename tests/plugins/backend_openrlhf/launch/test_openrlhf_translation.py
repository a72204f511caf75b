"""A job becomes options that OpenRLHF's parser knows, or an error that names the key."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_backend_openrlhf import AGENT_FILE
from agentr1_backend_openrlhf.command.not_passed_on import ELSEWHERE, REFUSED
from agentr1_backend_openrlhf.command.options import shipped_options
from agentr1_backend_openrlhf.command.translate import launch_options
from agentr1_core.engine import SamplingParams
from agentr1_core.episode import RolloutLimits
from agentr1_core.errors import ConfigError
from agentr1_core.task import Task
from agentr1_core.testing import ScriptedEngine

OPTIONS = shipped_options()


def translated(job):
    return launch_options(job, OPTIONS)


def test_what_a_run_file_says_is_said_to_openrlhf(make_job):
    job = make_job(
        sampling=SamplingParams(max_tokens=32, temperature=0.7, top_p=0.9), seed=5, save_every=2, group_size=2
    )

    said = translated(job)

    assert {
        "actor.model_name_or_path": "Qwen/Qwen3-0.6B",
        "rollout.batch_size": 8,
        "rollout.n_samples_per_prompt": 2,
        "rollout.max_new_tokens": 32,
        "rollout.temperature": 0.7,
        "rollout.top_p": 0.9,
        "data.max_len": 512,
        "train.seed": 5,
        "train.batch_size": 16,
        "train.agent_func_path": str(AGENT_FILE),
        "ckpt.save_steps": 2,
        "ckpt.output_dir": str(job.run_dir / "checkpoint"),
        "data.prompt_dataset": str(job.run_dir / "openrlhf" / "prompts.jsonl"),
    }.items() <= said.items()
    assert not any(name.startswith(("eval.", "critic.", "ref.")) for name in said)


def test_held_out_tasks_are_evaluated(make_job):
    job = make_job(eval_tasks=[Task({"prompt": "?"})], eval_every=2)

    said = translated(job)

    assert said["eval.dataset"] == str(job.run_dir / "openrlhf" / "eval_prompts.jsonl")
    assert (said["eval.steps"], said["eval.temperature"], said["eval.n_samples_per_prompt"]) == (2, 0.0, 1)
    assert translated(replace(job, eval_every=0))["eval.steps"] == job.updates


def test_a_model_in_a_folder_is_named_from_anywhere(make_job, tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    monkeypatch.chdir(tmp_path)

    assert translated(make_job(model="model"))["actor.model_name_or_path"] == str(tmp_path / "model")


def test_an_estimator_with_values_brings_a_critic(make_job):
    said = translated(make_job({"critic": {"adam": {"lr": 1e-5}}}, estimator="step_gae"))

    assert said["algo.advantage.estimator"] == "gae"
    assert said["critic.model_name_or_path"] == "Qwen/Qwen3-0.6B"
    assert (said["critic.adam.lr"], said["critic.num_gpus_per_node"]) == (1e-5, 1)


def test_options_of_the_run_file_are_passed_on_dotted_or_nested(make_job):
    backend = {
        "actor.adam.lr": 2e-6,
        "actor": {"max_norm": 0.5, "adam.betas": [0.9, 0.99]},
        "ds": {"zero_stage": 3, "adam_offload": True, "lora": {"rank": 8}},
        "train.micro_batch_size": 2,
        "critic.adam.lr": None,
    }

    said = translated(make_job(backend, engine={"num_engines": 2, "gpu_memory_utilization": 0.4}))

    assert {
        "actor.adam.lr": 2e-6,
        "actor.max_norm": 0.5,
        "actor.adam.betas": [0.9, 0.99],
        "ds.zero_stage": 3,
        "ds.adam_offload": True,
        "ds.lora.rank": 8,
        "vllm.num_engines": 2,
        "vllm.gpu_memory_utilization": 0.4,
        "actor.num_gpus_per_node": 2,
    }.items() <= said.items()
    assert "critic.adam.lr" not in said


PASSED_ON = {
    "actor.adam.lr": st.floats(1e-8, 1e-2),
    "actor.adam.betas": st.lists(st.floats(0, 0.999), min_size=2, max_size=2),
    "actor.eps_clip_low_high": st.lists(st.floats(0, 1), min_size=2, max_size=2),
    "actor.lr_scheduler": st.sampled_from(["constant", "linear", "cosine_with_min_lr"]),
    "actor.muon.nesterov": st.none(),
    "ds.zero_stage": st.sampled_from([0, 1, 2, 3]),
    "ds.param_dtype": st.sampled_from(["bf16", "fp16"]),
    "ds.adam_offload": st.booleans(),
    "ds.packing_samples": st.booleans(),
    "ds.attn_implementation": st.sampled_from(["eager", "sdpa", "flash_attention_2"]),
    "train.micro_batch_size": st.sampled_from([1, 2, 4]),
    "train.max_epochs": st.integers(1, 4),
    "vllm.sync_backend": st.sampled_from(["nccl", "gloo"]),
    "algo.advantage.is_correction_threshold": st.lists(st.floats(0, 10), min_size=1, max_size=2),
}


@settings(max_examples=100, deadline=None)
@given(
    backend=st.fixed_dictionaries({}, optional=PASSED_ON),
    engines=st.sampled_from([1, 2, 4]),
    tensor_parallel=st.sampled_from([1, 2]),
    estimator=st.sampled_from(["grpo", "step_gae", "reinforce_pp"]),
    top_p=st.floats(0.01, 1),
    seed=st.integers(0, 2**31),
)
def test_every_option_is_known_and_read_back(
    make_job, parse, backend, engines, tensor_parallel, estimator, top_p, seed
):
    job = make_job(
        backend,
        engine={"num_engines": engines, "tensor_parallel_size": tensor_parallel},
        estimator=estimator,
        sampling=SamplingParams(max_tokens=64, top_p=top_p),
        seed=seed,
        prompts_per_update=16,
    )
    said = translated(job)

    found = parse(OPTIONS, OPTIONS.write(said))

    assert {OPTIONS[name].dest: value for name, value in said.items()}.items() <= found.items()
    assert {name: value for name, value in backend.items() if value is not None}.items() <= said.items()


@pytest.mark.parametrize("name", [*ELSEWHERE, *REFUSED])
def test_an_option_that_may_not_be_passed_on_is_refused_with_the_mend(make_job, name):
    with pytest.raises(ConfigError) as error:
        translated(make_job({name: 1}))

    assert f"`backend.{name}`" in error.value.problem
    assert error.value.mend


@pytest.mark.parametrize(
    ("backend", "changed", "problem", "mend"),
    [
        (
            {"ds": {"zero_stag": 3}},
            {},
            r"`backend.ds.zero_stag`: OpenRLHF 0.11.2 has no option",
            "backend.ds.zero_stage",
        ),
        ({"temperature": 1.0}, {}, r"`backend.temperature`", r"mean `sampling\.temperature`"),
        ({"python": 3}, {}, "`backend.python` is 3; expected text", "Mend"),
        ({"timeout_s": "long"}, {}, "`backend.timeout_s` is 'long'; expected a number", "Mend"),
        ({"timeout_s": 0}, {}, "`backend.timeout_s` is 0", "positive"),
        ({"quite_wrong": 1}, {}, r"`backend.quite_wrong`", r"python, timeout_s, ref\.\*"),
        ({"ds.zero_stage": 3, "ds": {"zero_stage": 2}}, {}, "given twice", "Keep one"),
        ({"ds.zero_stage": "3"}, {}, r"`backend.ds.zero_stage` is '3'", "Mend"),
        ({"vllm.num_engines": 2}, {"engine": {"num_engines": 2}}, "say the same", "Keep one"),
        ({}, {"limits": RolloutLimits()}, "`rollout.max_context` is not set", "Set `rollout.max_context`"),
        ({}, {"sampling": SamplingParams(max_tokens=512)}, "no room is left", "Raise `rollout.max_context`"),
        ({}, {"sampling": SamplingParams(temperature=0.0)}, "`sampling.temperature` is 0", "evaluation.sampling"),
        ({}, {"updates": 0}, "`algorithm.updates` is 0", "agentr1 rollout"),
        (
            {"algo.advantage.is_correction_level": "off"},
            {"sampling": SamplingParams(max_tokens=8, top_p=0.9)},
            "before temperature and truncation",
            r"\[1.0, 1.0\]",
        ),
        (
            {"actor": {"loss_agg_mode": "seq-mean-token-mean", "entropy_coef": 0.01}},
            {},
            "average over trajectories",
            "Remove `backend.actor.entropy_coef`",
        ),
        ({"actor.policy_loss_type": "gspo"}, {}, "one ratio for each row", "algorithm.merge: none"),
        ({"algo.advantage.is_correction_level": "seq"}, {}, "one weight for each row", "algorithm.merge: none"),
        ({"critic.adam.lr": 1e-5}, {}, "`backend.critic.adam.lr` would have no effect", "step_gae"),
        ({"ref.offload": True}, {}, "no effect", "algo.kl.init_coef"),
        ({"algo.kl.use_loss": True}, {}, "no effect", "algo.kl.init_coef"),
        ({"ds.lora.alpha": 32}, {}, "no effect", "ds.lora.rank"),
        ({"actor.muon.lr": 0.1}, {}, "no effect", "actor.optim: muon"),
        ({"logger.wandb.project": "mine"}, {}, "no effect", "logger.wandb.key"),
        ({"train.batch_size": 30}, {"engine": {"num_engines": 4}}, "split over 4 ranks in micro-batches of 1", "4 x 1"),
        ({"train.micro_batch_size": 3}, {}, "micro-batches of 3", "multiple"),
        ({"train.batch_size": 24}, {}, "32 episodes of an update make no whole number", "Make it 32"),
        ({"train.batch_size": 64}, {}, "no whole number of optimiser steps", "Make it 32"),
        ({"rollout.micro_batch_size": 64}, {}, "without work", "Lower"),
        ({"train.colocate_all": False}, {}, "GPUs are not said", "actor.num_gpus_per_node"),
        ({"actor.num_gpus_per_node": 4}, {"engine": {"num_engines": 2}}, "does not fit", "colocate_all: false"),
        ({"actor.num_nodes": 3}, {"engine": {"num_engines": 2}}, "evenly on 3 nodes", "engine.num_engines"),
        ({"ds.ring_attn_size": 2}, {}, "groups of 2", "Change"),
        ({}, {"engine": {"num_engines": 0}}, "`engine.num_engines` is 0", "at least 1"),
    ],
)
def test_what_cannot_be_said_is_refused_with_its_key(make_job, backend, changed, problem, mend):
    with pytest.raises(ConfigError) as error:
        translated(make_job(backend, **changed))

    assert error.match(problem)
    assert error.match(mend)


def test_a_divergence_brings_a_reference_model(make_job):
    backend = {"algo.kl.init_coef": 0.01, "algo.kl.use_loss": True, "ref.offload": True}

    said = translated(make_job(backend, engine={"num_engines": 2}))

    assert (said["algo.kl.init_coef"], said["algo.kl.estimator"]) == (0.01, "k2")
    assert (said["ref.num_nodes"], said["ref.num_gpus_per_node"], said["ref.offload"]) == (1, 2, True)
    assert "algo.kl.estimator" not in translated(make_job({"algo.kl.init_coef": 0.01}))  # in the rewards: k1


def test_everything_shares_the_gpus_of_the_engines_by_default(make_job):
    said = translated(make_job({"actor.num_nodes": 2}, engine={"num_engines": 8, "tensor_parallel_size": 2}))

    assert (said["actor.num_nodes"], said["actor.num_gpus_per_node"]) == (2, 8)
    assert said["train.colocate_all"]
    assert said["vllm.enable_sleep"]
    assert said["ds.enable_sleep"]
    assert said["vllm.gpu_memory_utilization"] == 0.6


def test_engines_and_policy_can_have_gpus_of_their_own(make_job):
    backend = {"train.colocate_all": False, "actor.num_gpus_per_node": 4}

    said = translated(make_job(backend, engine={"num_engines": 2, "tensor_parallel_size": 2}))

    assert (said["actor.num_gpus_per_node"], said["vllm.num_engines"]) == (4, 2)
    assert "vllm.enable_sleep" not in said
    assert "vllm.gpu_memory_utilization" not in said


def test_an_engine_plugin_has_machines_of_its_own(make_job):
    backend = {"actor.num_gpus_per_node": 2, "algo.kl.init_coef": 0.01}

    said = translated(make_job(backend, engine={"anything": "of its own"}, engine_kind=ScriptedEngine))

    assert (said["vllm.num_engines"], said["actor.num_gpus_per_node"], said["ref.num_gpus_per_node"]) == (0, 2, 2)
    assert not any(name.startswith("vllm.") for name in said if name != "vllm.num_engines")


@pytest.mark.parametrize(
    ("name", "value", "mend"), [("vllm.enforce_eager", True, "engine: openrlhf"), ("ds.lora.rank", 8, "all weights")]
)
def test_what_an_engine_plugin_cannot_follow_is_refused(make_job, name, value, mend):
    with pytest.raises(ConfigError, match=mend) as error:
        translated(make_job({name: value}, engine_kind=ScriptedEngine))

    assert f"`backend.{name}`" in error.value.problem


def test_losses_over_rows_are_passed_on_where_a_row_is_a_step(make_job):
    backend = {"actor.policy_loss_type": "gspo", "algo.advantage.is_correction_level": "seq"}

    said = translated(make_job(backend, merge="none"))

    assert backend.items() <= said.items()
