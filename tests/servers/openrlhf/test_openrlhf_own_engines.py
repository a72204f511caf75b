"""OpenRLHF's own rollout workers play the episodes and get their weights from OpenRLHF; a critic learns along.

Where vLLM is missing, ``embedded_rollouts`` stands in for it inside the workers; everything around is OpenRLHF's.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from safetensors.torch import load_file
from toy_run import Observer, toy_config, toy_job

from agentr1_backend_openrlhf.backend import OpenRLHFBackend


def max_change(before: Path, after: Path) -> float:
    """Largest change of a weight between two folders."""
    old, new = (load_file(folder / "model.safetensors") for folder in (before, after))
    return max(float((new[name].float() - old[name].float()).abs().max()) for name in old)


def test_steps_with_a_critic_through_openrlhfs_own_engines(ray_cluster: str, tmp_path: Path) -> None:
    backend = toy_config()["backend"] | {"vllm.sync_backend": "gloo", "train.colocate_all": False}
    backend |= {"actor": {**backend["actor"], "num_gpus_per_node": 1}, "critic": {"adam.lr": 1e-3}}
    job = toy_job(
        tmp_path / "run",
        engine={"name": "openrlhf", "enforce_eager": True},
        backend=backend,
        algorithm={"estimator": {"name": "step_gae"}, "updates": 8},
    )
    observer = Observer()
    result = OpenRLHFBackend().train(replace(job, hooks=observer))

    assert result.updates == 8
    for metrics in observer.updates:
        assert metrics["rows"] == 2 * metrics["episodes"] == 32
        assert metrics["logprob_gap"] < 0.05, "the engine has the weights of the policy"
        assert metrics["grad_norm"] > 0
        assert metrics["critic/grad_norm"] > 0
        assert metrics["critic/loss"] > 0
        assert metrics["ledger/trained"] == metrics["ledger/sampled"]
    first, last = (abs(m["critic/return"] - m["critic/value"]) for m in (observer.updates[0], observer.updates[-1]))
    assert last < first / 2, "the critic comes to know the returns"
    moved = max_change(Path(job.model), result.checkpoint)
    assert 1e-3 < moved < 0.1, "eight steps of Adam with a rate of 0.003"
    trained = [name for name in observer.ids if not name.startswith("eval/")]
    assert len(set(trained)) == len(trained) == 8 * 16
    assert len(observer.ids) - len(trained) == 2 * 4, "before and after"
