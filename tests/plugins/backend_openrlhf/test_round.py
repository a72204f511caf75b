"""What a round teaches: credit over trajectories, whatever the rows; values, penalties and averages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_backend_openrlhf.experiences import ReadOnlyRow
from agentr1_backend_openrlhf.round import Reading, Round, group_trajectories
from agentr1_core.credit import ESTIMATORS, GRPO, Credit, CreditBatch, StepGAE, StepGRPO, TokenGAE
from agentr1_core.errors import EnvError, RewardError
from agentr1_core.mdp import Group, StopReason
from agentr1_core.rows import TrainingRow, make_rows, token_weights

WITHOUT_VALUES = sorted(n for n, e in ESTIMATORS.items() if not e.needs_values and not e.needs_teacher)


def read(made: Round, values=None, kl: float | None = None) -> list[Reading]:
    """Readings in which the policy says what the engine said; ``values(row, place)`` is the critic."""
    found = []
    for row in made.rows:
        n = len(row.completion_ids) if isinstance(row, TrainingRow) else 1
        logprobs = row.logprobs.astype(float) if isinstance(row, TrainingRow) else np.zeros(1)
        said = None if values is None else np.array([values(row, place) for place in range(n)], dtype=float)
        found.append(Reading(logprobs, said, None if kl is None else np.full(n, kl)))
    return found


def by_token(made: Round, lesson) -> dict[tuple[str, str, int], list[float]]:
    """Advantages of each step's trained tokens."""
    found: dict[tuple[str, str, int], list[float]] = {}
    for row, target in zip(made.rows, lesson.targets, strict=True):
        for index in row.step_indices if target is not None else ():
            span = target.mask & (row.span_ids == index)
            found[row.group_id, row.trajectory_id, index] = np.round(target.advantages[span], 5).tolist()
    return found


@pytest.mark.parametrize("name", WITHOUT_VALUES)
@given(seed=st.integers(0, 10**6))
@settings(max_examples=10, deadline=None)
def test_advantages_are_the_estimators_however_rows_are_merged(name: str, seed: int, random_groups) -> None:
    groups = random_groups(seed)
    estimator = ESTIMATORS[name]()
    wanted = estimator.estimate(CreditBatch.from_groups(groups)).advantages
    merged, separate = (Round(groups, estimator, merge) for merge in ("linear", "none"))
    found = [by_token(made, made.assign(read(made))) for made in (merged, separate)]

    assert found[0] == found[1]
    steps = [(g.id, t.id, s) for g in groups for t in g.trajectories for s in t.steps]
    flat = [a for group, name, step in steps for a in found[0][group, name, step.index]]
    np.testing.assert_allclose(flat, wanted, atol=1e-4)
    assert len(merged.rows) <= len(separate.rows)


class WithoutStep(GRPO):
    """GRPO that leaves one step of each trajectory out of the training."""

    left_out = 0

    def estimate(self, batch: CreditBatch) -> Credit:
        first = np.concatenate([[True], np.diff(batch.trajectory) > 0])
        begin = np.maximum.accumulate(np.where(first, np.arange(batch.n_steps), 0))
        place = np.arange(batch.n_steps) - begin
        return replace(super().estimate(batch), masked=batch.steps_to_tokens(place == self.left_out))


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_a_step_that_the_estimator_masks_leaves_the_others_of_its_row(make_trajectory, left_out: int) -> None:
    steps = [([1], [5, 6], 0.0), ([1, 5, 6, 2], [7], 0.0)]
    first = make_trajectory("0", [*steps, ([1, 5, 6, 2, 7, 3], [8, 9], 1.0)])
    second = make_trajectory("1", [*steps, ([1, 5, 6, 2, 7, 3], [9, 9], 0.0)])
    estimator = WithoutStep()
    estimator.left_out = left_out
    merged, separate = (Round((Group("g", {}, (first, second)),), estimator, m) for m in ("linear", "none"))
    assert len(merged.rows) == 2
    found, wanted = (made.assign(read(made)) for made in (merged, separate))

    kept = {step: values for step, values in by_token(separate, wanted).items() if values}
    assert {step: values for step, values in by_token(merged, found).items() if values} == kept
    assert {index for _, _, index in kept} == {0, 1, 2} - {left_out}
    assert found.ledger == wanted.ledger
    assert sum(int(target.mask.sum()) for target in found.targets) == found.ledger.trained
    assert found.figures["logprob_gap"] == 0


def test_a_long_trajectory_weighs_no_more_in_its_groups_baseline(group: Group, make_trajectory) -> None:
    long = make_trajectory("2", [([n], [5], 0.1) for n in range(1, 9)])
    made = Round((replace(group, trajectories=(*group.trajectories, long)),), GRPO(), "linear")
    returns = np.array([0.75, 1.0, 0.8])

    found = by_token(made, made.assign(read(made)))
    wanted = (returns - returns.mean()) / (returns.std() + 1e-9)
    for place, trajectory in enumerate((*group.trajectories, long)):
        first = found["g", trajectory.id, 0][0]
        assert np.sign(first) == np.sign(wanted[place])
    assert sum(isinstance(row, TrainingRow) for row in made.rows) == 1 + 2 + 8


def test_the_ledger_and_the_figures_count_every_token(group: Group, make_trajectory) -> None:
    failed = make_trajectory("3", [([1], [5, 5], None)], stop=StopReason.ENV_ERROR)
    made = Round((replace(group, failed=(failed,)),), GRPO(), "linear")
    figures = made.assign(read(made)).figures

    assert figures["ledger/sampled"] == 10
    assert figures["ledger/trained"] == 8
    assert figures["ledger/dropped"] == figures["ledger/dropped/env_error"] == 2
    assert figures["episodes/failed"] == 1
    assert figures["logprob_gap"] == figures["kl"] == 0
    assert figures["count/stop/env_error"] == 1


def test_the_gap_is_between_engine_and_trainer(group: Group) -> None:
    made = Round((group,), GRPO(), "linear")
    off = [replace(one, logprobs=one.logprobs + 0.5) for one in read(made)]
    figures = made.assign(off).figures

    assert figures["logprob_gap"] == pytest.approx(0.5)
    assert figures["kl"] == pytest.approx(np.exp(0.5) - 1.5)


def test_step_gae_takes_the_value_before_each_step_and_teaches_it_there(group: Group) -> None:
    made = Round((group,), StepGAE({"whiten": False, "lam": 1.0}), "linear", has_critic=True)
    lesson = made.assign(read(made, values=lambda row, place: 10.0 * place))

    growing, *_ = (t for t in lesson.targets if t is not None)
    # Row 1 2 | 5 6 3 7: the steps begin at places 0 and 3, so their values are 0 and 30; returns-to-go 0.75 and 0.5.
    np.testing.assert_allclose(growing.advantages, [0.75, 0.75, 0.0, 0.5 - 30.0])
    assert growing.value_mask.tolist() == [True, False, False, True]
    np.testing.assert_allclose(growing.returns[growing.value_mask], [0.75, 0.5])
    assert lesson.figures["critic/return"] == pytest.approx(np.mean([0.75, 0.5, 1.0, 1.0]))


def test_token_gae_takes_a_value_for_every_token(group: Group) -> None:
    made = Round((group,), TokenGAE({"whiten": False, "lam": 1.0}), "none", has_critic=True)
    lesson = made.assign(read(made, values=lambda row, place: 0.5))

    for target in lesson.targets:
        assert target.value_mask is None
        np.testing.assert_allclose(target.advantages, target.returns - 0.5, atol=1e-6)


def test_an_episode_that_was_cut_is_bootstrapped_from_what_would_have_come(make_trajectory) -> None:
    cut = make_trajectory("0", [([1], [5], 0.0)], stop=StopReason.TRUNCATED, after=[1, 5, 9])
    made = Round((Group("g", {}, (cut,)),), StepGAE({"whiten": False}), "linear", has_critic=True)
    prompts = [row for row in made.rows if isinstance(row, ReadOnlyRow)]
    lesson = made.assign(read(made, values=lambda row, place: 4.0 if isinstance(row, ReadOnlyRow) else 1.0))

    assert [row.prompt_ids.tolist() for row in prompts] == [[1, 5, 9]]
    assert lesson.targets[-1] is None
    np.testing.assert_allclose(lesson.targets[0].advantages, [4.0 - 1.0])


def test_a_step_without_tokens_to_train_is_still_valued(make_trajectory) -> None:
    silent = make_trajectory("0", [([1], [], 0.0), ([2], [5], 1.0)])
    made = Round((Group("g", {}, (silent,)),), StepGAE({"whiten": False, "lam": 0.0}), "none", has_critic=True)
    prompts = [row for row in made.rows if isinstance(row, ReadOnlyRow)]

    assert [row.prompt_ids.tolist() for row in prompts] == [[1]]
    assert made.assign(read(made, values=lambda row, place: 0.25)).figures["critic/value"] == pytest.approx(0.25)


def test_the_divergence_is_taken_from_the_reward_of_its_step(group: Group) -> None:
    plain = Round((group,), StepGRPO({"gamma": 1.0}), "none")
    charged = Round((group,), StepGRPO({"gamma": 1.0}), "none", kl_in_reward=0.1)
    lesson = charged.assign(read(charged, kl=2.0))

    def cheaper(trajectory):  # 0.1 x 2.0 for each token of the step
        steps = [replace(s, reward=s.reward - 0.2 * len(s.action)) for s in trajectory.steps]
        return replace(trajectory, steps=tuple(steps))

    wanted = Round((replace(group, trajectories=tuple(map(cheaper, group.trajectories))),), plain.estimator, "none")
    assert by_token(charged, lesson) == by_token(wanted, wanted.assign(read(wanted)))
    assert lesson.figures["reward"] == pytest.approx(0.875), "what is reported is what was earned"
    assert lesson.figures["kl_penalty"] == pytest.approx(0.2 * 8 / 2)


def test_equal_weight_for_trajectories_is_folded_into_the_advantages(group: Group) -> None:
    made = Round((group,), GRPO(), "none", weights="traj-mean-token-mean")
    lesson = made.assign(read(made))
    credit = GRPO().estimate(CreditBatch.from_groups((group,)))
    rows = make_rows((group,), credit, merge="none")
    weights = token_weights(rows, "traj-mean-token-mean")

    n_tokens = sum(row.n_trained for row in rows.rows)
    found = sum(float(t.advantages[t.mask].sum()) for t in lesson.targets) / n_tokens
    assert found == pytest.approx(sum(float((w * r.advantages).sum()) for w, r in zip(weights, rows.rows, strict=True)))


def test_the_negative_control_hands_out_other_trajectories_credit(group: Group, random_groups) -> None:
    groups = random_groups(3)
    plain, shuffled = (Round(groups, GRPO(), "none", shuffle=seed) for seed in (None, (0, 1)))

    def means(made: Round) -> list[float]:
        found: dict[str, list[float]] = {}
        for (group_id, name, _), values in by_token(made, made.assign(read(made))).items():
            found.setdefault(group_id + name, []).extend(values)
        return [round(float(np.mean(v)), 4) for v in found.values()]

    assert means(plain) != means(shuffled)
    assert sorted(means(plain)) == sorted(means(shuffled))


def test_groups_form_by_name_and_small_ones_fail_whole(growing, rewritten, make_trajectory) -> None:
    lone = make_trajectory("0", [([1], [5], 1.0)], group="h")
    broken = make_trajectory("1", [([1], [5], 1.0)], group="h", stop=StopReason.ENGINE_ERROR)
    first, second = group_trajectories([growing, lone, rewritten, broken], 2)

    assert [t.id for t in first.trajectories] == ["g/0", "g/1"]
    assert not second.trajectories
    assert "only 1 of the group's 2 episodes" in second.failed[-1].error


def test_a_round_in_which_every_episode_failed_says_why(make_trajectory) -> None:
    failed = replace(make_trajectory("0", [], stop=StopReason.ENV_ERROR), error="the sandbox is gone")
    with pytest.raises(EnvError, match="the sandbox is gone"):
        Round((Group("g", {}, (), (failed,)),), GRPO(), "linear")


def test_a_round_without_any_reward_is_refused(make_trajectory) -> None:
    unscored = make_trajectory("0", [([1], [5], None)])
    with pytest.raises(RewardError, match="reward"):
        Round((Group("g", {}, (unscored,)),), GRPO(), "linear")
