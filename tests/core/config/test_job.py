"""From a configuration to what plays: environments, contexts, flows by row, tools, rewards, tasks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from agentr1_core.config import check_config
from agentr1_core.context import ContextEnv, KeepLast, Rewrite
from agentr1_core.engine import SamplingParams
from agentr1_core.env import AgentEnv
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.errors import ConfigError, DataError, PluginError
from agentr1_core.flow import AgentFlowBase, SingleStepFlow
from agentr1_core.job.build import find_recipe, rollout_limits, sampling_params
from agentr1_core.job.material import find_model, find_warm_start, load_train_and_eval
from agentr1_core.job.play import FlowByRow, build_flow, build_reward, build_tools
from agentr1_core.mdp import Action, Step, StopReason, Trajectory, float_array, token_array
from agentr1_core.plugins import PluginManager, hookimpl
from agentr1_core.plugins.discovery import builtin_plugin
from agentr1_core.recipe import Recipe
from agentr1_core.task import Task
from agentr1_core.tool import BaseTool, ToolContext, tool
from agentr1_core.tool_env import ToolEnv


class Maze(AgentEnv):
    def __init__(self, size: int, walls: int = 0) -> None:
        self.size, self.walls = size, walls

    async def reset(self, task: Task) -> str:
        return f"{self.size} by {self.size}"

    async def step(self, action: Action) -> Any:
        return None, 0.0, True, {}


@tool
def look() -> str:
    """Look around."""
    return "a wall"


class Map(BaseTool):
    name = "map"

    def __init__(self, scale: int = 1) -> None:
        self.scale = scale

    async def execute(self, args: dict[str, Any], ctx: ToolContext) -> str:
        return f"1:{self.scale}"


def last_word(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [messages[-1]]


def compute_score(data_source: Any, solution_str: str, ground_truth: Any, extra_info: Any) -> float:
    return float(ground_truth in solution_str)


class Mazes:
    @hookimpl
    def agentr1_envs(self) -> Mapping[str, Any]:
        return {"maze": Maze}

    @hookimpl
    def agentr1_tools(self) -> Mapping[str, Any]:
        return {"look": look, "map": Map}

    @hookimpl
    def agentr1_rewards(self) -> Mapping[str, Any]:
        return {"scored": compute_score}

    @hookimpl
    def agentr1_contexts(self) -> Mapping[str, Any]:
        return {"last_word": last_word}


@pytest.fixture(scope="module")
def plugins() -> PluginManager:
    manager = PluginManager()
    manager.load((builtin_plugin(),))
    manager.register(Mazes(), "mazes")
    return manager


def make(plugins: PluginManager, tree: dict[str, Any], *rows: dict[str, Any]) -> tuple[AgentFlowBase, list[Task]]:
    tasks = [Task(row, f"row {number}") for number, row in enumerate(rows)]
    config = check_config(tree)
    return build_flow(config, plugins, build_tools(config, plugins), tasks)(), tasks


def env_of(flow: AgentFlowBase, task: Task) -> AgentEnv:
    assert isinstance(flow, AgentEnvLoop)
    return flow.make_env(task)


def test_without_env_or_flow_the_tool_environment_plays_with_the_runs_tools(plugins: PluginManager) -> None:
    flow, (task,) = make(plugins, {"tools": ["look", {"name": "map", "scale": 7}]}, {"prompt": "go"})

    env = env_of(flow, task)

    assert isinstance(env, ToolEnv)
    assert list(env.tools) == ["look", "map"]
    assert env.tools["map"].scale == 7  # type: ignore[attr-defined]


def test_env_kwargs_of_the_row_win_over_the_run_file(plugins: PluginManager) -> None:
    tree = {"env": {"name": "maze", "size": 3, "walls": 1}}
    flow, (plain, own) = make(plugins, tree, {}, {"env_kwargs": '{"size": 9, "not_an_argument": 1}'})

    first, second = env_of(flow, plain), env_of(flow, own)

    assert isinstance(first, Maze)
    assert isinstance(second, Maze)
    assert (first.size, first.walls) == (3, 1)
    assert (second.size, second.walls) == (9, 1)


def test_what_every_row_gives_need_not_stand_in_the_run_file(plugins: PluginManager) -> None:
    make(plugins, {"env": "maze"}, {"env_kwargs": {"size": 2}}, {"env_kwargs": {"size": 3}})

    with pytest.raises(ConfigError, match="`env`: Maze needs size"):
        make(plugins, {"env": "maze"}, {"env_kwargs": {"size": 2}}, {})


def test_a_row_chooses_among_the_runs_tools(plugins: PluginManager) -> None:
    rows = [{"prompt": "go", "env_kwargs": {"tools": [name]}} for name in ("map", "compass")]
    flow, (known, unknown) = make(plugins, {"tools": ["look", "map"]}, *rows)

    env = env_of(flow, known)
    assert isinstance(env, ToolEnv)
    assert list(env.tools) == ["map"]
    with pytest.raises(DataError, match="row 1: env_kwargs wants the tool 'compass'"):
        env_of(flow, unknown)


def test_a_context_policy_serves_one_episode(plugins: PluginManager) -> None:
    flow, (task,) = make(plugins, {"context": {"name": "keep_last", "k": 2}}, {"prompt": "go"})

    first, second = env_of(flow, task), env_of(flow, task)

    assert isinstance(first, ContextEnv)
    assert isinstance(second, ContextEnv)
    assert isinstance(first.policy, KeepLast)
    assert first.policy.k == 2
    assert first.policy is not second.policy


def test_a_rewriting_function_is_named_in_the_run_file(plugins: PluginManager) -> None:
    flow, (task,) = make(plugins, {"context": {"name": "rewrite", "rewrite": "last_word"}}, {"prompt": "go"})

    env = env_of(flow, task)
    assert isinstance(env, ContextEnv)
    assert isinstance(env.policy, Rewrite)
    assert env.policy.view([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])[0]["content"] == "b"


def test_agent_name_picks_the_flow_of_a_row(plugins: PluginManager) -> None:
    rows: list[dict[str, Any]] = [
        {"agent_name": "single_step", "prompt": "go"},
        {"agent_name": "maze", "env_kwargs": {"size": 2}},
        {"prompt": "go"},
    ]
    flow, _ = make(plugins, {}, *rows)

    assert isinstance(flow, FlowByRow)
    assert isinstance(flow.by_name["single_step"], SingleStepFlow)
    assert isinstance(env_of(flow.by_name["maze"], Task(rows[1])), Maze)
    assert isinstance(env_of(flow.default, Task(rows[2])), ToolEnv)


def test_rows_of_the_generic_loop_are_played_by_the_runs_environment(plugins: PluginManager) -> None:
    flow, _ = make(plugins, {}, {"agent_name": "agent_env_loop", "prompt": "go"})

    assert isinstance(flow, AgentEnvLoop)


def test_an_unknown_agent_name_is_an_error_unless_the_run_file_decides(plugins: PluginManager) -> None:
    with pytest.raises(DataError, match="row 0: no environment or flow is named 'their_agent'"):
        make(plugins, {}, {"agent_name": "their_agent"})

    flow, _ = make(plugins, {"flow": "single_step"}, {"agent_name": "their_agent", "prompt": "go"})
    assert isinstance(flow, SingleStepFlow)


@pytest.mark.parametrize("tree", [{}, {"env": "tools"}, {"flow": "single_step"}])
def test_a_row_without_a_prompt_is_told_before_anything_plays(plugins: PluginManager, tree: dict[str, Any]) -> None:
    with pytest.raises(
        DataError, match="row 1: column 'prompt' is missing or empty; the row has: promt, answer"
    ) as why:
        make(plugins, tree, {"prompt": "go"}, {"promt": "go", "answer": "4"})
    assert "Did you mean 'promt'?" in str(why.value.mend)


def test_settings_of_a_function_tool_and_two_tools_of_one_name_are_refused(plugins: PluginManager) -> None:
    with pytest.raises(ConfigError, match=r"`tools\.0`: the tool 'look' has no settings"):
        build_tools(check_config({"tools": [{"name": "look", "far": 1}]}), plugins)
    with pytest.raises(ConfigError, match=r"`tools\.0\.scael`: Map has no setting 'scael'") as caught:
        build_tools(check_config({"tools": [{"name": "map", "scael": 1}]}), plugins)
    assert caught.value.mend == "Did you mean `scale`?"
    with pytest.raises(PluginError, match="Two tools are named 'look'"):
        build_tools(check_config({"tools": ["look", "look"]}), plugins)


def answered(text: str) -> Trajectory:
    action = Action(token_array([1]), float_array([-0.1]), text, {"role": "assistant", "content": text})
    from agentr1_core.mdp import Observation

    step = Step(0, Observation(({"role": "user", "content": "?"},)), action)
    return Trajectory("t", "g", {"ground_truth": "4"}, (step,), StopReason.COMPLETED)


def test_rewards_are_summed_with_their_weights_under_their_names(plugins: PluginManager, run: Any) -> None:
    config = check_config({"reward": ["exact_match", {"name": "scored", "weight": 0.25}]})

    reward = build_reward(config.reward, plugins)

    assert reward is not None
    assert run(reward.score(answered("4"))) == {"exact_match": 1.0, "scored": 0.25}
    assert run(reward.score(answered("it is 4"))) == {"exact_match": 0.0, "scored": 0.25}


class Sums(Recipe):
    name = "sums"

    def __init__(self, largest: int = 9) -> None:
        self.largest = largest

    def tasks(self, split: str, size: int, seed: int) -> list[Task]:
        return [Task({"i": i, "split": split, "seed": seed}) for i in range(size)]

    @classmethod
    def run_files(cls) -> dict[str, Path]:
        raise NotImplementedError


def test_a_recipe_gives_as_many_tasks_as_the_run_file_asks_for() -> None:
    train, held = load_train_and_eval(
        check_config({"data": {"train_size": 5, "eval_size": 3}, "run": {"seed": 4}}), Sums()
    )
    assert (len(train), len(held)) == (5, 3)
    assert (train[0]["seed"], held[0]["split"]) == (4, "eval")

    train, held = load_train_and_eval(check_config({"data": {"eval_size": 0}}), Sums())
    assert (len(train), held) == (1024, [])


def test_eval_size_holds_rows_out_of_the_training_data(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"i": i}) + "\n" for i in range(5)))

    train, held = load_train_and_eval(check_config({"data": {"train": str(path), "eval_size": 2}}), None)

    assert [task["i"] for task in train] == [0, 1, 2]
    assert [task["i"] for task in held] == [3, 4]
    with pytest.raises(DataError, match=r"holds out 5 tasks, but '.*' has only 5"):
        load_train_and_eval(check_config({"data": {"train": str(path), "eval_size": 5}}), None)


def test_a_recipe_takes_settings_from_the_run_file() -> None:
    manager = PluginManager()
    manager.register(type("Offers", (), {"agentr1_recipes": hookimpl(lambda self: {"sums": Sums})})(), "sums")

    recipe = find_recipe(check_config({"recipe": {"name": "sums", "largest": 3}}), manager)

    assert isinstance(recipe, Sums)
    assert recipe.largest == 3
    with pytest.raises(ConfigError, match=r"recipe\.larges`.*no setting"):
        find_recipe(check_config({"recipe": {"name": "sums", "larges": 3}}), manager)


def test_the_model_of_a_recipe_that_has_none_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Recipe 'sums' brings no model of its own"):
        find_model(check_config({"model": "recipe"}), Sums(), tmp_path)
    with pytest.raises(ConfigError, match="`model: recipe` needs a recipe"):
        find_model(check_config({"model": "recipe"}), None, tmp_path)


def test_a_hub_id_is_left_to_the_engine_and_a_folder_must_exist(tmp_path: Path) -> None:
    (tmp_path / "qwen").mkdir()
    assert find_model(check_config({"model": "Qwen/Qwen3-0.6B"}), None, tmp_path) == "Qwen/Qwen3-0.6B"
    assert find_model(check_config({"model": str(tmp_path / "qwen")}), None, tmp_path) == str(tmp_path / "qwen")
    with pytest.raises(ConfigError, match=r"there is no folder '.*qwem'") as caught:
        find_model(check_config({"model": str(tmp_path / "qwem")}), None, tmp_path)
    assert "qwen" in str(caught.value.mend)


def test_a_warm_start_is_for_models_from_scratch_unless_always() -> None:
    class Shown(Sums):
        def demonstrations(self, size: int, seed: int) -> list[Mapping[str, Any]]:
            return [{"prompt": [], "completion": []}] * size

    def warm(tree: dict[str, Any], recipe: Recipe | None = None) -> Any:
        return find_warm_start(check_config(tree), recipe or Shown())

    wanted = {"demonstrations": 3, "learning_rate": 0.1}
    found = warm({"model": "recipe", "warm_start": wanted})
    assert (len(found.demonstrations), found.settings) == (3, {"learning_rate": 0.1})
    assert warm({"model": "Qwen/Qwen3-0.6B", "warm_start": wanted}) is None
    assert warm({"model": "Qwen/Qwen3-0.6B", "warm_start": {**wanted, "when": "always"}}) is not None
    assert warm({"model": "recipe", "warm_start": {**wanted, "when": "never"}}) is None
    assert warm({"model": "recipe"}) is None
    with pytest.raises(ConfigError, match="wants 3 demonstrations, but recipe 'sums' has none"):
        warm({"model": "recipe", "warm_start": wanted}, Sums())


def test_defaults_of_the_schema_are_those_of_the_core() -> None:
    from agentr1_core.episode import RolloutLimits

    assert rollout_limits(check_config({})) == RolloutLimits()
    assert sampling_params(check_config({})) == SamplingParams()


def test_the_built_in_offers_are_those_of_the_core(plugins: PluginManager) -> None:
    from agentr1_core.context import CONTEXT_POLICIES
    from agentr1_core.credit import ESTIMATORS
    from agentr1_core.reward import REWARDS

    core = PluginManager()
    core.load((builtin_plugin(),))
    for kind, expected in (("estimator", ESTIMATORS), ("context", CONTEXT_POLICIES), ("reward", REWARDS)):
        assert {name: core.get(kind, name) for name in core.names(kind)} == dict(expected)
    assert core.get("env", "tools") is ToolEnv


class Noted(AgentFlowBase):
    def __init__(self, name: str, notes: list[str], breaks_at: str = "") -> None:
        self.name, self.notes, self.breaks_at = name, notes, breaks_at

    async def run(self, task: Task, ctx: Any) -> None:
        return None

    async def start(self) -> None:
        self._note("start")

    async def close(self) -> None:
        self._note("close")

    def _note(self, what: str) -> None:
        self.notes.append(f"{what} {self.name}")
        if what == self.breaks_at:
            raise OSError(f"{self.name} does not {what}")


def test_flows_by_row_are_all_closed_although_one_fails(run: Any) -> None:
    notes: list[str] = []
    flows = FlowByRow(Noted("a", notes), {"b": Noted("b", notes, breaks_at="close")})
    run(flows.start())
    with pytest.raises(OSError, match="b does not close"):
        run(flows.close())
    assert notes == ["start a", "start b", "close b", "close a"]


def test_flows_by_row_that_started_are_closed_when_the_next_does_not_start(run: Any) -> None:
    notes: list[str] = []
    with pytest.raises(OSError, match="b does not start"):
        run(FlowByRow(Noted("a", notes), {"b": Noted("b", notes, breaks_at="start")}).start())
    assert notes == ["start a", "start b", "close a"]
