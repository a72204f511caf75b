"""Run files: what they may say, how overrides win, and what is said about mistakes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_core.config import check_config, dump, load_config
from agentr1_core.errors import ConfigError
from agentr1_core.job.build import eval_sampling_params, rollout_limits, sampling_params


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return path


def problem(tree: dict[str, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        check_config(tree, "run.yaml")
    return str(caught.value)


def test_an_empty_file_is_all_defaults(tmp_path: Path) -> None:
    config = load_config(write(tmp_path, ""))

    assert (config.engine.name, config.backend.name, config.algorithm.estimator.name) == ("transformers", "trl", "grpo")
    assert config.algorithm.group_size == 8
    assert config.env is None


def test_a_name_alone_means_a_section_with_that_name() -> None:
    short = check_config({"env": "tools", "tools": "search", "reward": "exact_match", "engine": "vllm"})
    long = check_config(
        {"env": {"name": "tools"}, "tools": [{"name": "search"}], "reward": [{"name": "exact_match"}], "engine": "vllm"}
    )

    assert short == long


def test_settings_beside_a_name_are_kept_for_the_plugin() -> None:
    config = check_config({"backend": {"name": "trl", "learning_rate": 1e-4}, "renderer": {"enable_thinking": False}})

    assert config.backend.settings == {"learning_rate": 1e-4}
    assert (config.renderer.name, config.renderer.settings) == ("auto", {"enable_thinking": False})


def test_overrides_are_yaml_and_the_last_one_wins(tmp_path: Path) -> None:
    path = write(tmp_path, "env: tools\nalgorithm: {updates: 1, estimator: rloo}\n")
    overrides = [
        ("algorithm.updates", "5"),
        ("algorithm.updates", "7"),
        ("env.system_prompt", "Be brief."),
        ("algorithm.estimator.truncated", "mask"),
        ("backend.learning_rate", "1e-4"),
        ("backend.peft.r", "8"),
        ("tools", "[search, {name: calculator, digits: 3}]"),
        ("model", "null"),
    ]

    config = load_config(path, overrides)

    assert config.algorithm.updates == 7
    assert config.env is not None
    assert config.env.settings == {"system_prompt": "Be brief."}
    assert config.algorithm.estimator.name == "rloo"
    assert config.algorithm.estimator.settings == {"truncated": "mask"}
    assert config.backend.settings == {"learning_rate": 1e-4, "peft": {"r": 8}}
    assert [tool.name for tool in config.tools] == ["search", "calculator"]


def test_an_override_inside_a_value_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"'algorithm\.updates' is int, not a section"):
        load_config(write(tmp_path, "algorithm: {updates: 1}"), [("algorithm.updates.more", "1")])


def test_a_dump_loads_back_unchanged(tmp_path: Path) -> None:
    config = check_config(
        {
            "model": "Qwen/Qwen3-0.6B",
            "env": {"name": "adding", "max_turns": 5},
            "reward": [{"name": "exact_match", "weight": 0.5}],
            "evaluation": {"sampling": {"temperature": 0}},
            "warm_start": {"demonstrations": 10, "learning_rate": 1e-3},
        }
    )

    assert load_config(write(tmp_path, dump(config))) == config


@settings(max_examples=40, deadline=None)
@given(value=st.floats(allow_nan=False, allow_infinity=False), digits=st.integers(1, 12))
def test_numbers_in_scientific_notation_are_numbers(
    tmp_path_factory: pytest.TempPathFactory, value: float, digits: int
) -> None:
    text = f"{value:.{digits}e}"
    path = tmp_path_factory.mktemp("run") / "run.yaml"
    path.write_text(f"backend: {{lr: {text}}}\n")

    assert load_config(path).backend.settings == {"lr": float(text)}


def test_a_data_path_is_also_looked_for_beside_the_run_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "train.jsonl").write_text("{}\n")

    config = load_config(write(tmp_path, "data: {train: train.jsonl, eval: other/name}"))

    assert config.data.train == str(tmp_path / "train.jsonl")
    assert config.data.eval == "other/name"


def test_sampling_of_evaluation_changes_only_what_it_names() -> None:
    config = check_config({"sampling": {"max_tokens": 9, "top_p": 0.9}, "evaluation": {"sampling": {"temperature": 0}}})

    assert sampling_params(config).temperature == 1.0
    evaluated = eval_sampling_params(config)
    assert (evaluated.temperature, evaluated.max_tokens, evaluated.top_p) == (0, 9, 0.9)


def test_limits_of_an_episode_come_from_the_rollout_section() -> None:
    limits = rollout_limits(check_config({"rollout": {"max_steps": 3, "step_timeout_s": None, "concurrency": 4}}))

    assert (limits.max_steps, limits.step_timeout_s, limits.engine_retries) == (3, None, 2)


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"algorithm": {"grop_size": 4}}, "unknown key 'algorithm.grop_size'.\n  -> Did you mean `algorithm.group"),
        ({"group_size": 4}, "unknown key 'group_size'.\n  -> Did you mean `algorithm.group_size`?"),
        ({"algorithm": {"rows": "tree"}}, "unknown key 'algorithm.rows'.\n  -> Did you mean `algorithm.merge` (`tree"),
        ({"temprature": 1}, "unknown key 'temprature'.\n  -> Did you mean"),
        ({"run": {"xyzzy": 1}}, "unknown key 'run.xyzzy'.\n  -> Known keys of `run`: name, dir, seed, save_every."),
        ({"algorithm": {"updates": "5"}}, "'algorithm.updates' is '5'; expected a whole number."),
        ({"algorithm": {"updates": 2.5}}, "'algorithm.updates' is 2.5; expected a whole number."),
        ({"algorithm": {"updates": True}}, "'algorithm.updates' is True; expected a whole number."),
        ({"algorithm": {"group_size": 0}}, "'algorithm.group_size' is 0; it must be greater than or equal to 1."),
        ({"algorithm": {"merge": "all"}}, "'algorithm.merge' is 'all'; expected one of none, linear, tree."),
        ({"sampling": {"temperature": "hot"}}, "'sampling.temperature' is 'hot'; expected a number."),
        ({"sampling": {"top_p": 0}}, "'sampling.top_p' is 0; it must be greater than 0."),
        ({"sampling": {"stop_token_ids": [1, "x"]}}, "'sampling.stop_token_ids.1' is 'x'; expected a whole number."),
        ({"data": {"shuffle": 1}}, "'data.shuffle' is 1; expected true or false."),
        ({"model": 7}, "'model' is 7; expected text."),
        ({"rollout": [1]}, "'rollout' is a list; expected a section."),
        ({"run": "quickstart"}, "'run' is 'quickstart'; expected a section."),
        ({"env": [1]}, "'env' is a list; expected a name, or a section with a name."),
        ({"tools": [{"digits": 3}]}, "'tools.0.name' is missing.\n  -> Set `tools.0.name`."),
        ({"reward": [{"name": "a", "wieght": 2}]}, "unknown key 'reward.0.wieght'.\n  -> Did you mean `reward.0.weig"),
        ({"warm_start": {"demonstrations": [1]}}, "'warm_start.demonstrations' is a list; expected a whole number or"),
        ({"env": "a", "flow": "b"}, "both env 'a' and flow 'b' are set"),
        ({"flow": "b", "context": "append"}, "context 'append' is set, but flow 'b' owns its context"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_key_and_the_mend(tree: dict[str, Any], said: str) -> None:
    assert f"run.yaml: {said}" in problem(tree)


def test_several_mistakes_are_told_at_once() -> None:
    said = problem({"algorithm": {"updates": "x", "groups": 2}, "modle": "y"})

    assert "has 3 mistakes" in said
    assert [line.strip() for line in said.splitlines()[1:4]] == [
        "- 'algorithm.updates' is 'x'; expected a whole number.",
        "- unknown key 'algorithm.groups'. Did you mean `algorithm.group_size`?",
        "- unknown key 'modle'. Did you mean `model`?",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("run: {name: a\n", "is not valid YAML"),
        ("- a\n- b\n", "a run file is a mapping of sections, not a list"),
        ("model: a\nmodel: b\n", "the key 'model' is given twice"),
    ],
)
def test_a_file_that_is_no_run_file_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(write(tmp_path, text))


def test_a_missing_run_file_names_a_near_one(tmp_path: Path) -> None:
    write(tmp_path, "")

    with pytest.raises(ConfigError, match=r"Did you mean '.*run\.yaml'"):
        load_config(tmp_path / "runn.yaml")
