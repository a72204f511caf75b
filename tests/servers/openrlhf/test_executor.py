"""The agent executor as OpenRLHF loads and calls it, and what OpenRLHF's own code makes of its answers.

Tokens are sampled by a real model; in the place of vLLM stands the embedded engine behind the same handle.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from toy_run import model_and_data, toy_config, toy_job
from vllm_shaped import VllmShaped

from agentr1_backend_openrlhf import AGENT_FILE, RUN_VARIABLE
from agentr1_backend_openrlhf.prompts import label_of
from agentr1_backend_openrlhf.request import TRAJECTORY, Request
from agentr1_core.config.load import check_config
from agentr1_core.errors import ConfigError, PluginError
from agentr1_core.job.rollouts import load_tokenizer
from agentr1_core.run_folder import RunFolder
from agentr1_core.task import Task


def executor_of(run_dir: Path, monkeypatch: pytest.MonkeyPatch, **env):
    config = toy_config(env={"name": "toy_env:EvenTokens", **env}, engine={"name": "openrlhf"})
    folder = RunFolder.create(check_config(config), path=run_dir, overwrite=True)
    monkeypatch.setenv(RUN_VARIABLE, str(folder.config))
    from openrlhf.trainer.ray.vllm_engine import _load_agent_executor

    return _load_agent_executor(str(AGENT_FILE))


def play(executor, labels, *, logprobs=1, prompt="number 3"):
    """Execute once for each label, all in one event loop, then let the executor close."""
    from agentr1_engine_transformers.engine import TransformersEngine

    model, _ = model_and_data()
    tokenizer = load_tokenizer(str(model))

    async def work():
        engine = TransformersEngine(TransformersEngine.Settings(model=str(model)))
        await engine.start()
        sampling = SimpleNamespace
        params = sampling(temperature=1.0, top_p=1.0, top_k=-1, max_tokens=3, logprobs=logprobs)

        async def one(label):
            return await executor.execute(
                prompt=prompt, label=label, sampling_params=params, max_length=96, hf_tokenizer=tokenizer,
                llm_engine=VllmShaped(engine),
            )  # fmt: skip

        try:
            return await asyncio.gather(*(one(label) for label in labels), return_exceptions=True)
        finally:
            await one(Request(None, "close", 1, close=True))
            await engine.close()

    return asyncio.run(work())


def a_row(executor):
    """The first answer that is a row: some of a random model's tokens are no text, and the template then rewrites."""
    answers = play(executor, ['{"question": "number 3"}'] * 24)
    assert all(isinstance(answer, (dict, PluginError)) for answer in answers), answers
    return next(answer for answer in answers if isinstance(answer, dict))


def test_a_stock_trainer_gets_one_row_for_a_growing_context(tmp_path, monkeypatch) -> None:
    executor = executor_of(tmp_path, monkeypatch, rewrites=False)
    answer = a_row(executor)

    ids, ranges = answer["observation_tokens"], answer["action_ranges"]
    assert len(ranges) == 2
    assert all(1 <= end - start <= 3 for start, end in ranges), "the shorter of the two limits holds"
    even = [np.mean([ids[place] % 2 == 0 for place in range(start, end)]) for start, end in ranges]
    assert answer["reward"] == pytest.approx(sum(even))
    marked = {place for start, end in ranges for place in range(start, end)}
    assert all((p < 0) == (place in marked) for place, p in enumerate(answer["rollout_log_probs"]))
    assert TRAJECTORY not in answer


def test_openrlhfs_own_code_takes_that_row(tmp_path, monkeypatch) -> None:
    from openrlhf.trainer.ppo_utils.samples_generator import SamplesGenerator

    executor = executor_of(tmp_path, monkeypatch, rewrites=False)
    answer = a_row(executor)
    made = SamplesGenerator._process_response_into_experience(None, answer, max_len=96)

    mask = made.action_mask[0].tolist()
    assert [place + 1 for place, on in enumerate(mask) if on] == [
        place for start, end in answer["action_ranges"] for place in range(start, end)
    ]
    assert made.rewards.item() == pytest.approx(answer["reward"])
    assert made.info["agentr1/steps"].item() == 2


def test_a_stock_trainer_is_refused_a_rewritten_context(tmp_path, monkeypatch) -> None:
    executor = executor_of(tmp_path, monkeypatch, rewrites=True)
    (refused,) = play(executor, ['{"question": "number 3"}'])
    assert isinstance(refused, PluginError)
    assert "agentr1_backend_openrlhf.train" in refused.mend
    assert "(rewritten)" in refused.problem


def test_the_step_trainer_gets_whole_trajectories_of_one_group(tmp_path, monkeypatch) -> None:
    executor = executor_of(tmp_path, monkeypatch, rewrites=True)
    answers = play(executor, [Request(label_of(Task({"question": "number 5"}), "train"), "0/7", 3)] * 3)

    found = [answer[TRAJECTORY] for answer in answers]
    assert sorted(trajectory.id for trajectory in found) == ["0/7/0", "0/7/1", "0/7/2"]
    assert all(len(trajectory.steps) == 2 and not trajectory.steps[1].continued for trajectory in found)
    assert all(trajectory.task["question"] == "number 5" for trajectory in found)
    assert [answer["scores"] for answer in answers] == [trajectory.ret for trajectory in found]


def test_images_are_refused(tmp_path, monkeypatch) -> None:
    executor = executor_of(tmp_path, monkeypatch)
    with pytest.raises(PluginError, match="images"):
        asyncio.run(executor.execute("", "", None, 0, None, None, images=["a.png"]))


def test_without_a_run_file_the_worker_says_what_to_set(monkeypatch) -> None:
    from openrlhf.trainer.ray.vllm_engine import _load_agent_executor

    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=RUN_VARIABLE):
        _load_agent_executor(str(AGENT_FILE))


def test_every_private_name_is_there() -> None:
    from agentr1_backend_openrlhf.private_names import NAMES, check_version, find, plain_class

    assert check_version()
    for name in NAMES:
        find(name)
    for name in ("PPOTrainer", "PolicyModelActor", "CriticModelActor"):
        assert plain_class(name).__module__.startswith("openrlhf.")


def test_flags_that_cannot_be_kept_are_refused(tmp_path, monkeypatch) -> None:
    from openrlhf_arguments import parse

    from agentr1_backend_openrlhf.checks import check_arguments
    from agentr1_backend_openrlhf.command import launch_arguments
    from agentr1_backend_openrlhf.run import load_run

    job = toy_job(tmp_path / "run")
    monkeypatch.setenv(RUN_VARIABLE, str(tmp_path / "run" / "config.yaml"))
    run, flags = load_run(), launch_arguments(job)
    args = parse(flags)
    check_arguments(args, run)
    assert args.agentr1_weights == "token-mean"
    for more, said in (
        (["--train.async_enable"], "synchronous"),
        (["--reward.clip_range", "-1", "1"], "clip_range"),
        (["--rollout.temperature", "0.5"], "temperature"),
        (["--vllm.num_engines", "1"], "engine.name"),
        (["--algo.advantage.estimator", "gae"], "critic"),
        (["--ds.lora.rank", "4"], "adapters"),
    ):
        with pytest.raises(ConfigError, match=said):
            check_arguments(parse([*flags, *more]), run)
    args = parse([*flags, "--actor.loss_agg_mode", "seq-mean-token-mean"])
    check_arguments(args, run)
    assert (args.agentr1_weights, args.actor.loss_agg_mode) == ("traj-mean-token-mean", "token-mean")
