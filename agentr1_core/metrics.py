"""Numbers that describe collected trajectories, under the names every backend reports.

Pure functions from trajectories to flat mappings; reward and token figures are means over trajectories.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from agentr1_core.mdp import FinishReason, Trajectory
from agentr1_core.rollout import Collection


def is_success(trajectory: Trajectory) -> bool:
    """Whether the task was solved: ``info["success"]`` of the last step where given, else a positive return."""
    if not trajectory.steps:
        return False
    said = trajectory.steps[-1].info.get("success")
    return trajectory.ret > 0 if said is None else bool(said)


def success_rate(trajectories: Sequence[Trajectory]) -> float | None:
    """Share of solved tasks in [0, 1]; ``None`` without trajectories."""
    return float(np.mean([is_success(trajectory) for trajectory in trajectories])) if trajectories else None


def describe_trajectories(trajectories: Sequence[Trajectory]) -> dict[str, float]:
    """Reward, success, length and token figures of trajectories.

    Returns:
        ``reward``, ``reward_std``, ``rewards/<name>``, ``success``, ``steps_per_episode``, ``tokens/sampled``,
        ``tokens/prompt`` (both per episode), ``actions/cut_share``; empty without trajectories.
    """
    if not trajectories:
        return {}
    returns = np.array([trajectory.ret for trajectory in trajectories])
    actions = [step.action for trajectory in trajectories for step in trajectory.steps]
    named: dict[str, list[float]] = defaultdict(list)
    for trajectory in trajectories:
        for name, value in trajectory.rewards.items():
            named[name].append(value)
    return {
        "reward": float(returns.mean()),
        "reward_std": float(returns.std()),
        "success": float(np.mean([is_success(trajectory) for trajectory in trajectories])),
        "steps_per_episode": float(np.mean([len(trajectory.steps) for trajectory in trajectories])),
        "tokens/sampled": float(np.mean([trajectory.n_tokens for trajectory in trajectories])),
        "tokens/prompt": float(np.mean([sum(s.n_prompt for s in t.steps) for t in trajectories])),
        "actions/cut_share": float(np.mean([action.finish_reason is FinishReason.LENGTH for action in actions])),
        **{f"rewards/{name}": float(np.mean(values)) for name, values in sorted(named.items())},
    }


def describe_collection(collection: Collection) -> dict[str, float]:
    """``describe_trajectories`` of what is usable, plus failures, the counters' sums and the seconds it took."""
    counters: Mapping[str, float] = collection.counters
    return {
        **describe_trajectories(collection.trajectories),
        "episodes": float(len(collection.trajectories)),
        "episodes/failed": float(len(collection.failed)),
        "rollout_seconds": collection.seconds,
        **{f"count/{name}": float(value) for name, value in sorted(counters.items())},
    }
