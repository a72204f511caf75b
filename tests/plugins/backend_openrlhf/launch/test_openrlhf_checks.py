"""OpenRLHF's arguments against a run file, in launches that somebody else wrote and in agentr1's own."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from agentr1_backend_openrlhf.checks import check_arguments
from agentr1_backend_openrlhf.command.launch import launch_of
from agentr1_backend_openrlhf.command.options import shipped_options
from agentr1_backend_openrlhf.run import Run
from agentr1_core.config import load_config
from agentr1_core.errors import ConfigError
from agentr1_core.job import build_job
from agentr1_core.plugins import PluginManager

OPTIONS = shipped_options()
EXAMPLES = Path(__file__).parents[4] / "examples" / "gpu"
RUN = """
tools: [calculator]
reward: [math_answer]
sampling: {max_tokens: 64, temperature: 0.5}
rollout: {max_context: 512}
algorithm: {estimator: {name: ESTIMATOR}, merge: linear}
engine: ENGINE
backend: openrlhf
"""
#: An OpenRLHF launch that goes with it.
SCRIPT = ["--rollout.temperature", "0.5", "--algo.advantage.estimator", "group_norm", "--vllm.num_engines", "2"]
SCRIPT += ["--algo.advantage.is_correction_level", "token"]


@pytest.fixture(scope="module")
def plugins():
    return PluginManager.discover()


@pytest.fixture
def make_run(tmp_path, plugins):
    def make(estimator="grpo", engine="openrlhf", merge="linear"):
        path = tmp_path / "run.yaml"
        path.write_text(RUN.replace("ESTIMATOR", estimator).replace("ENGINE", engine).replace("linear", merge))
        return Run(path, load_config(path, plugins=plugins), plugins)

    return make


@pytest.fixture
def arguments(parse):
    """``arguments(words)``: nested, and completed as OpenRLHF's command line does before it trains."""

    def read(words):
        args = SimpleNamespace()
        for name, value in parse(OPTIONS, words).items():
            *sections, last = name.split(".")
            node = args
            for section in sections:
                node.__dict__.setdefault(section, SimpleNamespace())
                node = getattr(node, section)
            setattr(node, last, value)
        if args.algo.advantage.estimator != "gae":
            args.critic.model_name_or_path = None
        elif args.critic.model_name_or_path is None:
            args.critic.model_name_or_path = args.actor.model_name_or_path or "the policy's"
        return args

    return read


def test_a_launch_that_goes_with_its_run_file_is_completed(make_run, arguments):
    args = arguments(SCRIPT)

    check_arguments(args, make_run())

    assert args.actor.entropy_coef == 0.0
    assert args.agentr1_weights == "token-mean"


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("openrlhf_*gpu*.yaml")), ids=lambda path: path.stem)
def test_the_launch_of_a_run_file_always_goes_with_it(example, tmp_path, plugins, arguments):
    config = load_config(example, [("data.train_size", "8")], plugins)

    launch = launch_of(build_job(config, plugins, tmp_path))

    check_arguments(arguments(launch.arguments), Run(example, config, plugins))


@pytest.mark.parametrize(
    ("more", "problem", "mend"),
    [
        (["--train.async_enable"], "--train.async_enable", "Remove"),
        (["--train.dynamic_batch_enable"], "drops rows", "micro_batch_size"),
        (["--reward.clip_range", "-1", "1"], "not clipped", "Bound them"),
        (["--reward.overlong_buffer_len", "16"], "--reward.overlong_buffer_len", "reward function"),
        (["--reward.stop_properly_penalty_coef", "0.5"], "--reward.stop_properly_penalty_coef", "truncated"),
        (["--reward.normalize_enable"], "reward model", "Remove"),
        (["--algo.advantage.gamma", "0.9"], "estimator takes its place", r"algorithm\.estimator\.gamma"),
        (["--algo.advantage.lambd", "0.9"], "estimator takes its place", r"algorithm\.estimator\.lam"),
        (["--algo.advantage.no_std_norm"], "estimator takes its place", "in the run file"),
        (["--data.apply_chat_template"], "renders the messages itself", "Remove"),
        (["--data.input_template", "Q: {}"], "renders the messages itself", "Remove"),
        (["--data.max_images_per_prompt", "1"], "images", "Remove"),
        (["--rollout.temperature", "0.6"], "is 0.6, but `sampling.temperature` of .* is 0.5", "same value"),
        (["--rollout.top_p", "0.9"], "`sampling.top_p`", "same value"),
        (["--algo.advantage.estimator", "gae"], "takes no critic", "--algo.advantage.estimator reinforce"),
        (["--vllm.num_engines", "0"], "starts no engines", "--vllm.num_engines"),
        (["--algo.advantage.is_correction_level", "off"], "before temperature", "is_correction_level token"),
        (["--actor.policy_loss_type", "gspo"], "one ratio for a whole row", "algorithm.merge: none"),
        (["--actor.loss_agg_mode", "seq-mean-token-mean", "--algo.kl.use_loss"], "means trajectories", "token-mean"),
    ],
)
def test_what_cannot_be_kept_is_refused_with_the_reason(make_run, arguments, more, problem, mend):
    with pytest.raises(ConfigError) as error:
        check_arguments(arguments([*SCRIPT, *more]), make_run())

    assert error.match(problem)
    assert error.match(mend)


def test_a_run_file_with_a_critic_needs_one(make_run, arguments):
    with pytest.raises(ConfigError, match="needs a critic"):
        check_arguments(arguments(SCRIPT), make_run(estimator="step_gae"))


def test_averages_over_rows_become_averages_over_trajectories(make_run, arguments):
    args = arguments([*SCRIPT, "--actor.loss_agg_mode", "seq-mean-token-mean"])

    check_arguments(args, make_run())

    assert (args.agentr1_weights, args.actor.loss_agg_mode) == ("traj-mean-token-mean", "token-mean")


def test_a_ratio_for_each_row_is_kept_where_a_row_is_a_step(make_run, arguments):
    check_arguments(arguments([*SCRIPT, "--actor.policy_loss_type", "gspo"]), make_run(merge="none"))


@pytest.mark.parametrize(
    ("engine", "backend", "n"),
    [
        ("openrlhf", "openrlhf", 1),
        ("{name: openrlhf, num_engines: 4}", "openrlhf", 4),
        ("openrlhf", "{name: openrlhf, vllm: {num_engines: 8}}", 8),
        ("openrlhf", "{name: openrlhf, vllm.num_engines: 8}", 8),
    ],
)
def test_episodes_are_shared_by_the_engines_that_the_run_file_says(tmp_path, plugins, engine, backend, n):
    (tmp_path / "run.yaml").write_text(f"engine: {engine}\nbackend: {backend}\n")

    assert Run(tmp_path / "run.yaml", load_config(tmp_path / "run.yaml"), plugins).n_own_engines == n
