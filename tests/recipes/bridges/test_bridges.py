"""One real episode through each bridge, and what a bridge says when its library is missing.

A bridge whose library is not installed here is skipped; `make test-bridges` installs all of them and skips none.
"""

import asyncio
import importlib.util
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentr1_core.env import close_env, reset_env, step_env
from agentr1_core.errors import ConfigError, DataError, EnvError, PluginError
from agentr1_core.plugins import PluginManager
from agentr1_core.task import Task
from agentr1_core.testing.env_kit import EnvKit, answer
from agentr1_recipes.bridges.gem_env import GemEnv
from agentr1_recipes.bridges.gymnasium_env import DiscreteCodec, GymnasiumEnv
from agentr1_recipes.bridges.openenv_env import OpenEnvEnv
from agentr1_recipes.bridges.reasoning_gym_env import ReasoningGymEnv
from agentr1_recipes.bridges.textarena_env import TextArenaEnv

#: Set by `make test-bridges`: a missing library is then a failure.
ALL = os.environ.get("AGENTR1_TEST_ALL_BRIDGES") == "1"


def needs(module):
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing and not ALL, reason=f"{module} is not installed")


def play(env, row, say):
    """One episode: ``say`` makes an answer from what is shown last. All observations' texts, and the results."""

    async def episode():
        results = []
        try:
            async with asyncio.timeout(120):
                shown = await reset_env(env, Task(row))
                texts = [shown.messages[-1]["content"]]
                while not results or not (results[-1].terminated or results[-1].truncated):
                    results.append(await step_env(env, answer(say(texts[-1]))))
                    texts.append(results[-1].observation.messages[-1]["content"])
        finally:
            await close_env(env)
        return texts, results

    return asyncio.run(episode())


def bisect(low, high, brackets):
    """Plays guess-the-number games by halving."""
    bounds = [low, high]
    last = []

    def say(text):
        if last and re.findall("higher|lower", text)[-1] == "higher":
            bounds[0] = last[-1] + 1
        elif last:
            bounds[1] = last[-1] - 1
        last.append(sum(bounds) // 2)
        return brackets.format(last[-1])

    return say


MOVES = ["left", "down", "right", "up"]
LAKE = {
    "id": "FrozenLake-v1",
    "make": {"desc": ["SFF", "HFH", "FFG"], "is_slippery": False},
    "codec_settings": {"names": MOVES},
    "max_turns": 10,
}
WAY = ["I go right.", "down", "Not left: down", "action: 2"]


@needs("gymnasium")
class TestGymnasium(EnvKit):
    def make_env(self):
        return GymnasiumEnv(**LAKE)

    def task(self):
        return {}

    def answers(self):
        return WAY

    def test_the_lake_is_crossed(self):
        way = iter(WAY)
        texts, results = play(self.make_env(), {}, lambda text: next(way))
        assert texts[0] == "Actions: 0 (left), 1 (down), 2 (right), 3 (up). Answer with one of them.\n\n0"
        assert texts[1:] == ["1", "4", "7", "8"]
        assert [result.reward for result in results] == [0, 0, 0, 1]
        assert results[-1].terminated
        assert not results[-1].truncated

    def test_an_answer_that_is_no_action_costs_a_turn_and_does_not_step(self):
        env = GymnasiumEnv(**{**LAKE, "max_turns": 2, "invalid_reward": -0.5})
        texts, results = play(env, {}, lambda text: "upwards -1 12")
        assert texts[-1].startswith("That is no action. Actions: 0 (left)")
        assert [result.reward for result in results] == [-0.5, -0.5]
        assert results[-1].truncated
        assert env.counters == {"answers/invalid": 2}

    def test_the_seed_of_the_row_decides(self):
        def first(seed):
            texts, _ = play(GymnasiumEnv("CartPole-v1", max_turns=1), {"seed": seed}, lambda text: "0")
            return texts[0]

        assert first(1) == first(1) != first(2)

    def test_actions_without_words_need_a_codec(self):
        with pytest.raises(ConfigError, match="no text codec for Pendulum-v1"):
            play(GymnasiumEnv("Pendulum-v1"), {}, lambda text: "0")

    def test_a_codec_of_ones_own_is_named_in_the_settings(self):
        env = GymnasiumEnv("Pendulum-v1", codec="codec_for_pendulum:Torque", max_turns=2)
        sys.modules["codec_for_pendulum"] = type(sys)("codec_for_pendulum")

        class Torque(DiscreteCodec):
            def introduce(self, env):
                return "Say a torque."

            def parse(self, text, env):
                import numpy as np

                return np.array([float(text)], dtype=np.float32)

        sys.modules["codec_for_pendulum"].Torque = Torque
        try:
            texts, results = play(env, {}, lambda text: "0.5")
        finally:
            del sys.modules["codec_for_pendulum"]
        assert texts[0].startswith("Say a torque.")
        assert results[0].reward < 0

    def test_text_spaces_need_no_codec(self):
        import gymnasium

        class Echo(gymnasium.Env):
            action_space = gymnasium.spaces.Text(10, charset="abc")
            observation_space = gymnasium.spaces.Text(10, charset="abc Sy.")

            def reset(self, *, seed=None, options=None):
                super().reset(seed=seed)
                return "Say abc.", {}

            def step(self, action):
                return action, float(action == "abc"), action == "abc", False, {}

        gymnasium.register("Echo-v0", Echo)
        said = iter(["xyz", "ab", " abc "])
        texts, results = play(GymnasiumEnv("Echo-v0"), {}, lambda text: next(said))
        assert texts[1].startswith("That answer is not allowed")
        assert [result.reward for result in results] == [0.0, 0.0, 1.0]


@needs("textarena")
class TestTextArena(EnvKit):
    def make_env(self):
        return TextArenaEnv("GuessTheNumber-v0")

    def task(self):
        return {"seed": 3}

    def answers(self):
        texts, results = [], []
        say = bisect(1, 20, "[{}]")
        _, results = play(self.make_env(), self.task(), lambda text: texts.append(say(text)) or texts[-1])
        assert len(texts) == len(results)
        return texts

    def test_the_number_is_found(self):
        texts, results = play(self.make_env(), self.task(), bisect(1, 20, "[{}]"))
        assert "between 1 and 20" in texts[0]
        assert (results[-1].reward, results[-1].terminated) == (1.0, True)
        assert len(results[0].observation.messages) == 1, "the observation holds the whole game, so it replaces"

    def test_another_player_is_spoken_for(self):
        env = TextArenaEnv("TicTacToe-v0", players=2, opponent=lambda text: "[8]" if "[8]" in text else "[7]")
        moves = iter(["[0]", "[1]", "[2]"])
        _, results = play(env, {"seed": 1}, lambda text: next(moves))
        assert (results[-1].reward, results[-1].terminated) == (1.0, True)

    def test_several_players_need_an_opponent(self):
        with pytest.raises(ConfigError, match="who speaks for the others"):
            TextArenaEnv("TicTacToe-v0", players=2)


@needs("reasoning_gym")
class TestReasoningGym(EnvKit):
    def make_env(self):
        return ReasoningGymEnv("basic_arithmetic", size=5, seed=1)

    def task(self):
        return {"index": 0}

    def answers(self):
        return ["I think it is <answer>-4</answer>"]

    @pytest.mark.parametrize(
        ("said", "score"), [("<answer>-4</answer>", 1.0), ("-4", 1.0), ("<answer>9</answer>", 0.0)]
    )
    def test_the_library_scores(self, said, score):
        texts, (result,) = play(self.make_env(), self.task(), lambda text: said)
        assert texts[0].startswith("Calculate 5 - 3 - 6.")
        assert (result.reward, result.terminated, result.info["success"]) == (score, True, score == 1.0)

    def test_every_kind_of_question_is_asked(self):
        from reasoning_gym.factory import DATASETS

        assert len(DATASETS) > 90
        texts, _ = play(ReasoningGymEnv("spell_backward", size=2), {"index": 1}, lambda text: "x")
        assert "backward" in texts[0]

    @pytest.mark.parametrize("index", [None, 5, -1, "0"])
    def test_a_row_without_a_question_is_named(self, index):
        with pytest.raises(DataError, match="from 0 to 4"):
            play(self.make_env(), {"index": index}, lambda text: "x")


@needs("gem")
class TestGem(EnvKit):
    def make_env(self):
        return GemEnv("game:GuessTheNumber-v0-easy")

    def task(self):
        return {"seed": 1}

    def answers(self):
        texts = []
        say = bisect(1, 10, "\\boxed{{{}}}")
        play(self.make_env(), self.task(), lambda text: texts.append(say(text)) or texts[-1])
        return texts

    def test_the_number_is_found(self):
        texts, results = play(self.make_env(), self.task(), bisect(1, 10, "\\boxed{{{}}}"))
        assert "between 1 and 10" in texts[0]
        assert texts[0].endswith("Enter your next guess.")
        assert (results[-1].reward, results[-1].terminated) == (1.0, True)


@needs("openenv")
class TestOpenEnv(EnvKit):
    @pytest.fixture(scope="class", autouse=True)
    def url(self):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        process = subprocess.Popen([sys.executable, str(Path(__file__).parent / "openenv_server.py"), str(port)])
        try:
            for _ in range(600):
                with socket.socket() as probe:
                    if probe.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            type(self).address = f"http://127.0.0.1:{port}"
            yield
        finally:
            process.kill()
            process.wait()

    def make_env(self):
        return OpenEnvEnv(self.address, action_field="number", observation_field="text")

    def task(self):
        return {"seed": 7}

    def answers(self):
        return ["1", "4"]

    def test_a_session_is_played(self):
        said = iter(["1", "2", "4"])
        texts, results = play(self.make_env(), self.task(), lambda text: next(said))
        assert texts == ["Guess. Seed 7.", "Wrong, guess 1.", "Wrong, guess 2.", "Right."]
        assert [result.reward for result in results] == [0.0, 0.0, 1.0]
        assert results[-1].terminated

    def test_the_answer_may_be_the_action_itself(self):
        said = iter(["four", '{"number": "4"}'])
        texts, results = play(OpenEnvEnv(self.address), {}, lambda text: next(said))
        assert texts[1] == "Answer with the action as one JSON object."
        assert '"text": "Right."' in texts[2]
        assert results[-1].terminated

    def test_a_field_that_is_not_there_is_named(self):
        with pytest.raises(EnvError, match="one of: "):
            play(OpenEnvEnv(self.address, observation_field="board"), {}, lambda text: "{}")

    def test_a_server_that_is_not_there_is_named(self):
        with pytest.raises(EnvError, match="cannot be used"):
            play(OpenEnvEnv("http://127.0.0.1:9", timeout_s=2), {}, lambda text: "{}")


@pytest.mark.parametrize(
    ("env", "module", "extra"),
    [
        (GymnasiumEnv("FrozenLake-v1"), "gymnasium", "gymnasium"),
        (TextArenaEnv("GuessTheNumber-v0"), "textarena", "textarena"),
        (ReasoningGymEnv("basic_arithmetic"), "reasoning_gym", "reasoning-gym"),
        (GemEnv("game:GuessTheNumber-v0"), "gem", "gem"),
        (OpenEnvEnv("http://127.0.0.1:9"), "openenv", "openenv"),
    ],
    ids=["gymnasium", "textarena", "reasoning_gym", "gem", "openenv"],
)
def test_a_missing_library_is_named_with_its_extra(env, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PluginError) as refused:
        play(env, {"index": 0}, lambda text: "")
    assert f"needs the package {module}" in str(refused.value)
    assert f"pip install 'agentr1-recipes[{extra}]'" in str(refused.value)


@pytest.mark.parametrize("name", ["gem", "gymnasium", "openenv", "reasoning_gym", "textarena"])
def test_each_bridge_is_known_by_name_without_its_library(name):
    assert issubclass(PluginManager.discover().get("env", name), GymnasiumEnv.__mro__[1])
