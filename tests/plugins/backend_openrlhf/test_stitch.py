"""A trajectory as the one row of a stock OpenRLHF trainer."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agentr1_backend_openrlhf.stitch import single_row
from agentr1_core.errors import EnvError, PluginError
from agentr1_core.mdp import StopReason


def test_a_growing_context_is_one_row_with_marked_actions(growing) -> None:
    row = single_row(growing, with_logprobs=True)

    assert row["observation_tokens"] == [1, 2, 5, 6, 3, 7]
    assert row["action_ranges"] == [(2, 4), (5, 6)]
    np.testing.assert_allclose(row["rollout_log_probs"], [0, 0, -1, -2, 0, -1])
    assert row["reward"] == row["scores"] == 0.75
    assert row["extra_logs"] == {"agentr1/success": 1.0, "agentr1/steps": 2.0}
    assert row["truncated"] is False


def test_without_log_probs_there_are_none(growing) -> None:
    assert single_row(growing, with_logprobs=False)["rollout_log_probs"] is None


def test_a_rewritten_context_is_refused_with_the_way_out(rewritten) -> None:
    with pytest.raises(PluginError, match=r"before step 1.*2 training rows") as refused:
        single_row(rewritten, with_logprobs=True)
    assert "agentr1_backend_openrlhf.train" in refused.value.mend


def test_a_failed_episode_is_refused_with_its_cause(growing) -> None:
    failed = replace(growing, stop_reason=StopReason.ENV_ERROR, error="the sandbox is gone")
    with pytest.raises(EnvError, match="the sandbox is gone"):
        single_row(failed, with_logprobs=True)


def test_an_episode_without_a_step_is_refused(growing) -> None:
    with pytest.raises(EnvError, match="no step was taken"):
        single_row(replace(growing, steps=()), with_logprobs=True)


def test_an_episode_without_a_reward_trains_no_token(make_trajectory) -> None:
    row = single_row(make_trajectory("0", [([1, 2], [5], None)]), with_logprobs=True)
    assert row["action_ranges"] == []
    assert row["reward"] == 0.0
