"""A trajectory as the single row that a stock OpenRLHF trainer takes.

That trainer knows one sequence with marked actions and one reward. A trajectory whose context only grew is exactly
that; one whose context was rewritten is not, and saying so is better than training on half of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from agentr1_core.credit import Credit
from agentr1_core.errors import EnvError, PluginError
from agentr1_core.mdp import Group, Trajectory
from agentr1_core.metrics import is_success
from agentr1_core.rows import TrainingRow, make_rows

_STEP_TRAINER = (
    "Start the launch with `python -m agentr1_backend_openrlhf.train` in place of "
    "`python -m openrlhf.cli.train_ppo_ray`: its trainer takes any number of rows for a prompt."
)


def single_row(trajectory: Trajectory, *, with_logprobs: bool) -> dict[str, Any]:
    """``observation_tokens``, ``action_ranges``, ``rollout_log_probs``, ``reward`` and so on, as OpenRLHF names them.

    Raises:
        EnvError: The episode failed: a stock trainer cannot leave it out of its group.
        PluginError: The context was rewritten, so that one row cannot hold what the model saw.
    """
    if trajectory.stop_reason.is_failure or not trajectory.steps:
        cause = trajectory.error or "no step was taken"
        raise EnvError(
            f"Episode {trajectory.id} failed ({trajectory.stop_reason.value}): {cause}. OpenRLHF's own trainer needs "
            "every episode of a group.",
            f"Mend the cause. {_STEP_TRAINER} It leaves failed episodes out.",
        )
    group = Group(trajectory.group_id, trajectory.task, (trajectory,))
    rows = make_rows([group], Credit(np.zeros(trajectory.n_sampled)), merge="linear").rows
    if len(rows) > 1:
        cut = next(step.index for step in trajectory.steps if step.index > 0 and not step.continued)
        raise PluginError(
            f"Episode {trajectory.id}: the context was rewritten before step {cut}{_reasons(trajectory)}, which makes "
            f"{len(rows)} training rows, and OpenRLHF's own trainer takes one for each episode.",
            _STEP_TRAINER,
        )
    answer = {
        "reward": trajectory.ret,
        "scores": trajectory.ret,
        "truncated": trajectory.stop_reason.is_truncation,
        "extra_logs": {"agentr1/success": float(is_success(trajectory)), "agentr1/steps": float(len(trajectory.steps))},
    }
    return {**answer, **(_tokens(rows[0], with_logprobs) if rows else _no_tokens(trajectory, with_logprobs))}


def _reasons(trajectory: Trajectory) -> str:
    """Why prompts were rendered anew, as the renderer counted it: not only environments rewrite; a chat template does
    too where the sampled tokens are not what it would write."""
    begin = "prompts/rerendered/"
    found = [name.removeprefix(begin) for name in trajectory.counters if name.startswith(begin)]
    told = sorted(set(found) - {"first"})
    return f" ({', '.join(told)})" if told else ""


def _tokens(row: TrainingRow, with_logprobs: bool) -> dict[str, Any]:
    start = len(row.prompt_ids)
    edges = np.flatnonzero(np.diff(np.concatenate([[False], row.mask, [False]]).astype(np.int8)))
    return {
        "observation_tokens": [*row.prompt_ids.tolist(), *row.completion_ids.tolist()],
        "action_ranges": [(start + int(a), start + int(b)) for a, b in edges.reshape(-1, 2)],
        "rollout_log_probs": [0.0] * start + row.logprobs.tolist() if with_logprobs else None,
    }


def _no_tokens(trajectory: Trajectory, with_logprobs: bool) -> dict[str, Any]:
    """Nothing that could be trained, such as an episode without any reward."""
    ids = trajectory.steps[-1].prompt_ids.tolist()
    return {
        "observation_tokens": ids,
        "action_ranges": [],
        "rollout_log_probs": [0.0] * len(ids) if with_logprobs else None,
    }
