"""Token trees with agentr1's own losses, a critic and a teacher: the layout still changes nothing."""

import importlib.util
from pathlib import Path

import pytest

from agentr1_core.errors import ConfigError

spec = importlib.util.spec_from_file_location("gradient_tools", Path(__file__).with_name("test_trl_gradient.py"))
tools = importlib.util.module_from_spec(spec)
spec.loader.exec_module(tools)
apart, train_one = tools.apart, tools.train_one


@pytest.mark.parametrize(
    "told",
    [
        {"loss": "gspo"},
        {"loss": {"name": "cispo", "aggregation": "traj-mean-step-mean-token-sum"}},
        {"loss": "ppo", "estimator": "step_gae", "critic": {"learning_rate": 1e-2}},
    ],
    ids=["gspo", "cispo", "critic"],
)
def test_a_tree_has_the_gradient_of_its_rows(make_trainer, tiny, told):
    dataset = tiny.dataset(append=True)
    linear, _, wanted = train_one(make_trainer, dataset=dataset, merge="linear", **told)
    tree, _, found = train_one(make_trainer, dataset=dataset, merge="tree", **told)
    assert apart(found, wanted) < 1e-5
    for figure in set(linear.last_update) & {"critic/loss", "critic/grad_norm", "credit/teacher_gap"}:
        assert tree.last_update[figure] == pytest.approx(linear.last_update[figure], rel=1e-4, abs=1e-6)


def test_a_teacher_with_trees(make_trainer, tiny):
    told = {"estimator": "distill", "dataset": tiny.dataset(append=True)}
    _, _, wanted = train_one(make_trainer, merge="linear", teacher=tiny.model(seed=5), **told)
    _, _, found = train_one(make_trainer, merge="tree", teacher=tiny.model(seed=5), **told)
    assert apart(found, wanted) < 1e-5


def test_a_shared_critic_reads_padded_rows(make_trainer):
    with pytest.raises(ConfigError, match="padded rows"):
        make_trainer(estimator="step_gae", critic={"kind": "shared"}, merge="tree")
