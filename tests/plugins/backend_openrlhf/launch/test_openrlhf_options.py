"""The list of options, and the words they become, which argparse must read back as they were."""

from __future__ import annotations

import argparse
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentr1_backend_openrlhf.command.openrlhf_parser import read_parser
from agentr1_backend_openrlhf.command.options import SHIPPED, Options, options_of, shipped_options, to_json
from agentr1_core.errors import ConfigError

OPTIONS = shipped_options()
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
ONE = {
    "int": st.integers(),
    "float": st.floats(allow_nan=False, allow_infinity=False) | st.just(math.inf) | st.integers(-1000, 1000),
}

SOURCE = """
import torch_that_is_not_there

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--a.rate", type=float, default=0.5, help="how fast")
    parser.add_argument("--a.names", type=str, nargs="*", default="all")
    parser.add_argument("--a.pair", type=float, nargs=2, default=(0, 1))
    parser.add_argument("--a.level", type=str, choices=["off", "on"], default="off")
    parser.add_argument("--a.fast", action="store_true", default=True)
    parser.add_argument("--a.no_fast", dest="a.fast", action="store_false")
    args = parser.parse_args()
    raise SystemExit("never run")
"""


def values_of(option):
    if option.is_switch:
        return st.booleans()
    if option.choices:
        one = st.sampled_from(option.choices)
    elif option.kind == "str":
        one = TEXT if option.n_values is None else TEXT.filter(lambda text: not text.startswith("-"))
    else:
        one = ONE[option.kind]
    if option.n_values is None:
        return one
    least, most = {"*": (0, 4), "+": (1, 4)}.get(option.n_values, (option.n_values, option.n_values))
    return st.lists(one, min_size=least, max_size=most)


@st.composite
def settings_of_options(draw):
    """Values for some options; of those that share a destination only one."""
    names = st.sampled_from([option.name for option in OPTIONS])
    chosen = draw(st.lists(names, unique_by=lambda name: OPTIONS[name].dest, max_size=12))
    return {name: draw(values_of(OPTIONS[name])) for name in chosen}


@settings(max_examples=150, deadline=None)
@given(values=settings_of_options())
def test_what_is_written_is_read_back(parse, values):
    for name, value in values.items():
        OPTIONS.check(name, value, f"backend.{name}")

    found = parse(OPTIONS, OPTIONS.write(values))

    expected = {option.dest: option.default for option in OPTIONS}
    for name, value in values.items():
        option = OPTIONS[name]
        expected[option.dest] = not value if option.kind == "off" else value
    assert found == expected


def test_the_parser_is_read_from_source_without_its_imports(tmp_path):
    source = tmp_path / "train_ppo_ray.py"
    source.write_text(SOURCE)

    options = options_of(read_parser(source))

    told = [(each.name, each.kind, each.dest, each.n_values, each.choices, each.default) for each in options]
    assert told == [
        ("a.rate", "float", "a.rate", None, (), 0.5),
        ("a.names", "str", "a.names", "*", (), "all"),
        ("a.pair", "float", "a.pair", 2, (), [0, 1]),
        ("a.level", "str", "a.level", None, ("off", "on"), "off"),
        ("a.fast", "on", "a.fast", None, (), True),
        ("a.no_fast", "off", "a.fast", None, (), True),
    ]


def test_a_source_without_a_parser_is_told(tmp_path):
    source = tmp_path / "train_ppo_ray.py"
    source.write_text("from somewhere import main\n\nif __name__ == '__main__':\n    main()\n")

    with pytest.raises(ValueError, match="in another way"):
        read_parser(source)


def test_the_shipped_list_is_what_its_own_reader_writes():
    assert to_json(OPTIONS.version, list(OPTIONS)) == SHIPPED.read_text()


def test_a_switch_is_turned_by_whichever_flag_differs_from_its_default():
    options = Options("0", options_of(_with_switches()))

    assert options.write({"fast": True, "slow": False}) == []
    assert options.write({"fast": False, "slow": True}) == ["--no_fast", "--slow"]
    assert options.write({"no_fast": True}) == ["--no_fast"]
    assert options.write({"no_fast": False}) == []


def test_a_switch_that_cannot_be_turned_off_is_told():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", default=True)

    with pytest.raises(ConfigError, match=r"no option that turns --fast to false"):
        Options("0", options_of(parser)).write({"fast": False})


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("ds.zero_stage", "three", "takes a whole number"),
        ("ds.zero_stage", 2.5, "takes a whole number"),
        ("ds.zero_stage", True, "takes a whole number"),
        ("ds.zero_stage", [3], "takes one value"),
        ("actor.adam.lr", "1e-6", "takes a number"),
        ("actor.adam.lr", math.nan, "is nan"),
        ("actor.adam.betas", [0.9], "has 1 values; .* takes 2"),
        ("actor.optim", "sgd", "does not know"),
        ("ds.packing_samples", 1, "is true or false"),
        ("algo.advantage.is_correction_threshold", [], "is an empty list"),
        ("ds.lora.target_modules", ["--q_proj"], "would read as an option"),
    ],
)
def test_what_argparse_would_not_take_is_refused_with_its_key(name, value, problem):
    with pytest.raises(ConfigError, match=problem) as error:
        OPTIONS.check(name, value, f"backend.{name}")

    assert f"`backend.{name}`" in error.value.problem
    assert error.value.mend


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ("ds.zero_stag", "ds.zero_stage"),
        ("actor.learning_rate", None),
        ("adam.lr", "actor.adam.lr"),
        ("vllm.tensor_parallel", "vllm.tensor_parallel_size"),
        ("train.micro-batch-size", "train.micro_batch_size"),
        ("zero_stage", "ds.zero_stage"),
    ],
)
def test_the_nearest_option_is_found(misspelt, meant):
    assert OPTIONS.nearest(misspelt) == meant


def _with_switches():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fast", action="store_true", default=True)
    parser.add_argument("--no_fast", dest="fast", action="store_false")
    parser.add_argument("--slow", action="store_true")
    return parser
