"""Built-in rewards, on what an agent may say."""

import numpy as np
import pytest

from agentr1_core.errors import RewardError
from agentr1_core.mdp import Action, Observation, Step, StopReason, Trajectory
from agentr1_core.reward import RewardSum, contains_answer, exact_match, math_answer, score_function


def said(text, **row):
    action = Action(
        token_ids=np.array([1], dtype=np.int32),
        logprobs=np.array([-1.0], dtype=np.float32),
        text=text,
        message={"role": "assistant", "content": text},
    )
    return Trajectory("t", "g", row, (Step(0, Observation(()), action),), StopReason.COMPLETED)


@pytest.mark.parametrize(
    ("text", "truth", "exact", "contained"),
    [
        ("Paris", "Paris", 1, 1),
        ("the  PARIS.", "Paris", 1, 1),
        ("It is Paris, of course", "Paris", 0, 1),
        ("Parisian", "Paris", 0, 0),
        ("42", 42, 1, 1),
        ("b", ["a", "b"], 1, 1),
        ("b", {"target": ["b"]}, 1, 1),
        ("", "Paris", 0, 0),
    ],
)
def test_text_rewards(text, truth, exact, contained):
    trajectory = said(text, reward_model={"ground_truth": truth})
    assert exact_match(trajectory) == exact
    assert contains_answer(trajectory) == contained


@pytest.mark.parametrize(
    ("text", "truth", "reward"),
    [("The result is $\\frac{1}{2}$.", "0.5", 1), ("so 3,600 in all", "3600", 1), ("I say 7", "8", 0), ("?", "8", 0)],
)
def test_math_reward(text, truth, reward):
    assert math_answer(said(text, answer=truth)) == reward


def test_score_function_of_the_usual_signature():
    def compute_score(data_source, solution_str, ground_truth, extra_info):
        return {"score": float((data_source, solution_str, ground_truth, extra_info["k"]) == ("d", "s", "g", 1))}

    row = {"data_source": "d", "reward_model": {"ground_truth": "g"}, "extra_info": {"k": 1}}
    assert score_function(compute_score)(said("s", **row)) == 1.0


def test_sum_keeps_each_reward_by_name_weighted(run):
    async def later(trajectory):
        return {"style": 0.5, "length": 0.25}

    rewards = RewardSum({"em": exact_match, "judge": later, "absent": lambda t: None}, {"judge": 2.0})
    assert run(rewards.score(said("x", answer="x"))) == {"em": 1.0, "judge/style": 1.0, "judge/length": 0.5}


def test_reward_that_hangs_meets_its_deadline(run):
    import asyncio

    async def hang(trajectory):
        await asyncio.sleep(60)

    with pytest.raises(RewardError, match=r"Reward 'slow' did not answer within 0\.05 seconds"):
        run(RewardSum({"slow": hang}, timeout_s=0.05).score(said("x")))


def test_timeout_of_the_rewards_own_is_told_as_it_is(run):
    def judge(trajectory):
        raise TimeoutError("the judge is slow")

    with pytest.raises(RewardError, match="Reward 'judge' raised TimeoutError: the judge is slow"):
        run(RewardSum({"judge": judge}, timeout_s=None).score(said("x")))
