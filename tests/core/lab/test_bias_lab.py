"""The lab's task against brute force, and what it finds out about the built-in estimators."""

import json
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from agentr1_core.cli.main import main
from agentr1_core.credit import ESTIMATORS, Credit, Estimator
from agentr1_core.errors import ConfigError
from agentr1_core.lab import StoppingMDP, draw_bias, measure_bias
from agentr1_core.lab.mdp import ANSWER, SEARCH, SEARCH_COST

N = 2000


def expected_return(preferences, success):
    """The mean return, by going through every way an episode can run."""
    policy = StoppingMDP(preferences, success).policy

    def worth(task, place):
        if place == success.shape[1]:
            return 0.0
        onward = worth(task, place + 1) - SEARCH_COST
        return policy[place, ANSWER] * success[task, place] + policy[place, SEARCH] * onward

    return np.mean([worth(task, 0) for task in range(len(success))])


def test_the_gradient_is_that_of_the_expected_return():
    mdp = StoppingMDP.standard()
    numeric, h = np.zeros_like(mdp.preferences), 1e-5
    for index in np.ndindex(mdp.preferences.shape):
        step = np.zeros_like(mdp.preferences)
        step[index] = h
        up, down = (expected_return(mdp.preferences + sign * step, mdp.success) for sign in (1, -1))
        numeric[index] = (up - down) / (2 * h)
    np.testing.assert_allclose(mdp.gradient(), numeric, atol=1e-9)
    assert np.mean(mdp.values()[:, 0]) == pytest.approx(expected_return(mdp.preferences, mdp.success))


def test_episodes_are_played_as_the_task_says():
    mdp = StoppingMDP.standard()
    played = mdp.play(20_000, np.random.default_rng(0))
    batch = played.credit_batch
    assert batch.trajectory_returns().mean() == pytest.approx(np.mean(mdp.values()[:, 0]), abs=0.01)
    first = np.append(True, np.diff(batch.trajectory) != 0)
    assert (played.place[first] == 0).all()
    for place in range(4):
        here = played.action[played.place == place]
        np.testing.assert_allclose(np.bincount(here, minlength=3) / len(here), mdp.policy[place], atol=0.02)
    assert (batch.terminated == batch.last).all()
    assert (np.diff(played.place)[~first[1:]] == 1).all()


@pytest.mark.parametrize(
    ("name", "settings", "verdict"),
    [
        ("reinforce", {}, "unbiased"),
        ("rloo", {}, "unbiased"),
        ("step_gae", {"whiten": False}, "unbiased"),
        ("token_gae", {"whiten": False, "lam": 0.5}, "unbiased"),
        ("dr_grpo", {}, "unbiased up to scale"),
        ("grpo", {}, "biased"),
        ("step_grpo", {}, "biased"),
        ("gigpo", {}, "biased"),
        ("reinforce_pp", {}, "biased"),
    ],
)
def test_verdicts_on_the_built_in_estimators(name, settings, verdict):
    assert measure_bias(ESTIMATORS[name](settings), n_batches=N).verdict == verdict


def test_dr_grpo_is_short_by_its_own_share_of_the_baseline():
    report = measure_bias(ESTIMATORS["dr_grpo"](), n_batches=N, group_size=4)
    assert report.scale == pytest.approx(3 / 4, abs=0.03)


def test_a_blind_critic_costs_variance_and_short_sight_costs_bias():
    sighted, blind = (
        measure_bias(ESTIMATORS["step_gae"]({"whiten": False, "lam": 1.0}), n_batches=N, critic=critic)
        for critic in ("exact", "none")
    )
    assert sighted.verdict == blind.verdict == "unbiased"
    assert blind.variance > 1.2 * sighted.variance
    short = measure_bias(ESTIMATORS["step_gae"]({"whiten": False, "lam": 0.0}), n_batches=N, critic="none")
    assert short.verdict == "biased"


def test_averaging_by_length_is_a_bias_of_its_own():
    report = measure_bias(ESTIMATORS["rloo"](), n_batches=N, average="traj-mean-token-mean")
    assert report.verdict == "biased"


class Backwards(Estimator):
    """Praises what failed."""

    name = "backwards"

    def estimate(self, batch):
        return Credit(-ESTIMATORS["rloo"]().estimate(batch).advantages)


def test_an_estimator_that_is_wrong_is_found_out():
    report = measure_bias(Backwards(), n_batches=N)
    assert report.verdict == "biased"
    assert report.cosine < -0.99
    assert report.scale == pytest.approx(-1, abs=0.05)


def test_the_picture_holds_both_gradients():
    svg = draw_bias(measure_bias(ESTIMATORS["grpo"](), n_batches=50))
    root = ElementTree.fromstring(svg)
    text = " ".join(root.itertext())
    assert "true gradient" in text
    assert "search in 4" in text
    assert "<script" not in svg


def test_a_teacher_is_no_policy_gradient():
    with pytest.raises(ConfigError, match="'distill'"):
        measure_bias(ESTIMATORS["distill"]())


def test_command(capsys, tmp_path):
    picture = tmp_path / "rloo.svg"
    assert main(["lab", "bias", "rloo", "--batches", "300", "--plot", str(picture), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["estimator"] == "rloo"
    assert found["batches"] == 300
    assert picture.read_text().count("<svg") == 1
    assert main(["lab", "bias", "step_grpo", "--batches", "50", "--set", "gamma=1.0"]) == 0
    assert "cosine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["grop"], "grop"),
        (["grpo", "--set", "gamma=1"], "gamma"),
        (["grpo", "--set", "eps"], "NAME=VALUE"),
        (["grpo", "--average", "mean"], "--average"),
        (["grpo", "--critic", "half"], "--critic"),
    ],
)
def test_command_says_what_is_wrong(capsys, arguments, said):
    assert main(["lab", "bias", *arguments, "--batches", "10"]) == 1
    assert said in capsys.readouterr().err


def test_a_third_partys_estimator_by_its_name(capsys, tmp_path, monkeypatch):
    (tmp_path / "their_credit.py").write_text(
        "import numpy as np\n"
        "from agentr1_core.credit import Credit, Estimator\n\n\n"
        "class Sign(Estimator):\n"
        "    name = 'sign'\n\n"
        "    def estimate(self, batch):\n"
        "        return Credit(batch.trajectories_to_tokens(np.sign(batch.trajectory_returns())))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["lab", "bias", "their_credit:Sign", "--batches", "300", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["estimator"] == "sign"
