"""``agentr1 certify`` on a real stack: it passes as it is, and each mistake made on purpose fails it."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from agentr1_backend_trl.backend import TRLBackend
from agentr1_core.backend import FAULTS, TrainingBackend, TrainingJob
from agentr1_core.certificate import Certificate, Check
from agentr1_core.credit import ESTIMATORS
from agentr1_core.engine import SamplingParams
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import RolloutLimits
from agentr1_core.errors import ConfigError, PluginError
from agentr1_core.task import Task
from agentr1_engine_transformers.engine import TransformersEngine

WORKER = Path(__file__).with_name("certify_worker.py")


def job_in(folder, tiny, **changes):
    model = folder / "model"
    tiny.model().save_pretrained(model)
    tiny.tokenizer().save_pretrained(model)
    job = TrainingJob(
        model=str(model),
        run_dir=folder / "run",
        train_tasks=[Task({"n": i}) for i in range(4)],
        eval_tasks=[],
        flow=lambda: AgentEnvLoop(lambda task: tiny.env(turns=3, append=task["n"] % 2 == 0)),
        reward=None,
        tools=None,
        estimator=ESTIMATORS["grpo"](),
        engine=(TransformersEngine, {}),
        limits=RolloutLimits(max_steps=4),
        sampling=SamplingParams(max_tokens=6),
        eval_sampling=SamplingParams(max_tokens=6),
        group_size=3,
        prompts_per_update=2,
        updates=1,
        concurrency=64,
        min_group_size=2,
        merge="tree",
        renderer=("auto", {}),
        settings={},
    )
    return replace(job, **changes)


def failed(certificate):
    return [check.name for check in certificate.checks if not check.passed]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"merge": "linear", "settings": {"gradient_checkpointing": True, "beta": 0.1}},
        {"settings": {"lora": {"r": 4, "target_modules": ["q_proj", "v_proj"]}}},
    ],
    ids=["tree", "recomputed", "adapter"],
)
def test_a_sound_stack_is_certified(tmp_path, tiny, changes):
    found = TRLBackend().certify(job_in(tmp_path, tiny, **changes))
    assert found.passed, failed(found)
    measured = {check.name: check.value for check in found.checks}
    assert measured["trained tokens that the engine sampled, under that very prompt (%)"] == 100.0
    assert measured["gradient, token tree, one mask: off separate rows, float64"] < 1e-12
    assert found.about["episodes"] == 6


FAILS = {
    "positions": "gradient, token tree",
    "shift": "gradient, token tree",
    "retokenise": "trained tokens that the engine sampled",
    "context": "tokens that changed between two turns",
    "stale": "after new weights",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_fails_it(tmp_path, tiny, fault):
    found = TRLBackend().certify(job_in(tmp_path, tiny), fault=fault)
    assert not found.passed
    assert any(name.startswith(FAILS[fault]) for name in failed(found))


def test_a_mistake_in_a_context_needs_one_that_is_continued(tmp_path, tiny):
    job = job_in(tmp_path, tiny, flow=lambda: AgentEnvLoop(lambda task: tiny.env(turns=3, append=False)))
    with pytest.raises(ConfigError, match="every one was rewritten"):
        TRLBackend().certify(job, n_groups=1, fault="context")


def test_two_processes_certify_together(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", str(WORKER)]
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [*command, str(tmp_path)], env=quiet, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    first, second = (json.loads((tmp_path / f"certificate-{rank}.json").read_text()) for rank in (0, 1))
    assert first == second
    sound, stale = first["None"], first["stale"]
    assert sound["passed"], sound
    assert (sound["about"]["processes"], sound["about"]["episodes"]) == (2, 6)
    (split,) = (check for check in sound["checks"] if "split over 2 ranks" in check["name"])
    assert split["note"] == ""  # by the ranks themselves
    assert 0 < split["value"] < split["limit"]
    assert [check["name"] for check in stale["checks"] if not check["passed"]] == [
        "after new weights: engine behind, as a share of their effect"
    ]


def test_what_does_not_apply_is_said(tmp_path, tiny):
    job = job_in(tmp_path, tiny, merge="none", settings={"importance_sampling_level": "sequence"})
    found = TRLBackend().certify(job)
    assert found.passed, failed(found)
    notes = [check.note for check in found.checks if check.value is None]
    assert len(notes) == 1
    assert "importance_sampling_level" in notes[0]


def test_a_tree_in_a_job(tmp_path, tiny):
    """Two updates as ``agentr1 train`` runs them."""
    job = job_in(tmp_path, tiny, updates=2, settings={"tree_tokens": 400, "tree_path": "mask"})
    result = TRLBackend().train(job)
    assert result.updates == 2
    assert result.ledger["trained"] > 0
    with pytest.raises(ConfigError, match=r"tree_tokens"):
        TRLBackend().check(replace(job, merge="linear"))


def test_limits():
    assert Check("a", 1.0, 1.0).passed
    assert not Check("a", 1.1, 1.0).passed
    assert not Check("a", math.nan, 1.0).passed
    assert not Check("a", 99.0, 100.0, exact=True).passed
    assert Check("a", None, 1.0, note="no such model").passed
    assert Check("a", 5.0).passed
    certificate = Certificate((Check("a", 1.1, 1.0), Check("b", None)), {"model": "M"})
    assert certificate.as_dict()["passed"] is False
    assert [check["passed"] for check in certificate.as_dict()["checks"]] == [False, True]


def test_a_backend_that_measures_nothing_says_so(tmp_path, tiny):
    with pytest.raises(PluginError, match="does not support `agentr1 certify`"):
        TrainingBackend.certify(TRLBackend(), job_in(tmp_path, tiny))
