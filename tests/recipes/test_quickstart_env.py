"""The quick start's environment, tasks, demonstrations and model."""

import random
from collections import Counter

from agentr1_core.render import create_chat_renderer
from agentr1_core.testing.env_kit import EnvKit
from agentr1_core.tool_format import HermesFormat
from agentr1_recipes.quickstart.demonstrations import demonstrate
from agentr1_recipes.quickstart.env import SPECS, AddingEnv, show
from agentr1_recipes.quickstart.recipe import Quickstart
from agentr1_recipes.quickstart.tiny_model import train_tokenizer

write = HermesFormat().write


class TestAddingEnv(EnvKit):
    def make_env(self):
        return AddingEnv()

    def task(self):
        return {"numbers": [7, 3, 5]}

    def answers(self):
        return [
            write("add", {"a": 7, "b": 3}),
            write("add", {"a": 10, "b": 5}),
            write("answer", {"value": 15}),
        ]

    def answers_into_a_limit(self):
        return [write("add", {"a": 7, "b": 4})] * 5

    def states(self, texts):
        played = self.play(texts)
        return [observation.messages[-1]["content"] for observation in played.observations], played.results

    def test_context_is_rewritten_every_turn(self):
        states, results = self.states(self.answers())
        assert states == ["have 7 todo 3 5", "have 10 todo 5", "have 15 todo none"]
        assert [result.reward for result in results] == [0.0, 0.0, 1.0]
        assert results[-1].info == {"success": True}

    def test_wrong_and_broken_calls_cost_a_turn(self):
        wrong = [write("add", {"a": 7, "b": 5}), "15", write("subtract", {}), write("add", {"a": "7", "b": 3}), "?"]
        states, results = self.states(wrong)
        assert states == ["have 7 todo 3 5"] * 6
        assert [result.truncated for result in results] == [False] * 4 + [True]

    def test_wrong_answer_ends_without_reward(self):
        _, (result,) = self.states([write("answer", {"value": 14})])
        assert (result.terminated, result.reward, result.info) == (True, 0.0, {"success": False})


def test_tasks_repeat_and_held_out_tasks_do_not_depend_on_the_seed():
    recipe = Quickstart()
    assert recipe.tasks("train", 5, 1) == recipe.tasks("train", 5, 1) != recipe.tasks("train", 5, 2)
    assert recipe.tasks("eval", 5, 1) == recipe.tasks("eval", 5, 2)


def test_about_half_of_the_demonstrations_are_good():
    rng = random.Random(0)

    def is_good(row):
        _, have, _, *todo = row["prompt"][1]["content"].split()
        good = write("answer", {"value": int(have)}) if todo == ["none"] else None
        good = good or write("add", {"a": int(have), "b": int(todo[0])})
        return row["completion"][0]["content"] == good

    counts = Counter(is_good(demonstrate(rng)) for _ in range(2000))
    assert 0.45 < counts[True] / 2000 < 0.55


def test_tiny_tokenizer_writes_a_call_in_few_tokens_and_reads_it_back():
    tokenizer = train_tokenizer()
    renderer = create_chat_renderer(tokenizer)
    prompt = renderer.render(show(17, [5]), SPECS)
    assert tokenizer.decode(prompt).startswith(
        "<|im_start|>system\nAdd the numbers, one call a turn.\ntools: add(a,b) answer(value)<|im_end|>\n"
    )
    call = write("add", {"a": 17, "b": 5})
    ids = tokenizer.encode(call)
    assert len(ids) <= 15
    assert tokenizer.decode(ids) == call


def test_base_model_loads_and_is_small(tmp_path):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = Quickstart().base_model(tmp_path / "model", seed=0)
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert sum(parameter.numel() for parameter in model.parameters()) < 300_000
    assert tokenizer.chat_template
    call = write("add", {"a": 17, "b": 5})
    assert tokenizer.encode(call) == train_tokenizer().encode(call)
    assert model.config.eos_token_id == tokenizer.eos_token_id
