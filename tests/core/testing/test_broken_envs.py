"""An environment for each rule that breaks it, and what the kit says of it."""

import random

import pytest

from agentr1_core.env import AgentEnv
from agentr1_core.mdp import Observation
from agentr1_core.testing.env_kit import EnvKit
from agentr1_core.testing.rules import rules_of


class Count(AgentEnv):
    """Say the number that follows; three right answers end it, five turns cut it. The broken ones change one thing."""

    def __init__(self):
        self.number, self.turns = 0, 0

    async def reset(self, task):
        self.number, self.turns = task["from"], 0
        return self.show()

    async def step(self, action):
        self.turns += 1
        right = action.text == str(self.number + 1)
        self.number += right
        done = self.number == 3
        return self.show(), float(right), done, not done and self.turns == 5, {}

    def show(self):
        return Observation(({"role": "user", "content": f"{self.number}, and then?"},), anchor=str(self.number))

    def snapshot(self):
        return self.number, self.turns

    def restore(self, state):
        self.number, self.turns = state


class EndsEarly(Count):
    async def step(self, action):
        observation, reward, *_ = await super().step(action)
        return observation, reward, True, False, {}


class ReturnsThree(Count):
    async def step(self, action):
        return "next", 0.0, False


class NeedsReset(Count):
    def __init__(self):
        self.turns = 0

    async def close(self):
        del self.number


class Draws(Count):
    def show(self):
        return f"{self.number} {random.random()}"


class SharedByAll(Count):
    state = {"number": 0}  # noqa: RUF012  # what it is there for

    async def reset(self, task):
        self.turns, self.state["number"] = 0, task["from"]
        return str(self.state["number"])

    async def step(self, action):
        self.turns += 1
        self.state["number"] += 1
        return str(self.state["number"]), 0.0, self.turns == 3, False, {}


class BothEndings(Count):
    async def step(self, action):
        observation, reward, done, _, info = await super().step(action)
        return observation, reward, done, done, info


class LimitTerminates(Count):
    async def step(self, action):
        observation, reward, done, cut, info = await super().step(action)
        return observation, reward, done or cut, False, info


class NeverCut(Count):
    async def step(self, action):
        observation, reward, done, _, info = await super().step(action)
        return observation, reward, done, False, info


class OddRole(Count):
    def show(self):
        return {"role": "narrator", "content": "Once upon a time"}


class ContentIsANumber(Count):
    def show(self):
        return {"role": "user", "content": self.number}


class ToolWithoutSchema(Count):
    def show(self):
        return Observation(({"role": "user", "content": "?"},), tools=({"name": "next", "description": "x"},))


class RewritesThePast(Count):
    async def reset(self, task):
        self.message = {"role": "user", "content": ""}
        return await super().reset(task)

    def show(self):
        self.message["content"] = f"{self.number}, and then?"
        return self.message


class CrashesOnWords(Count):
    async def step(self, action):
        int(action.text)
        return await super().step(action)


class CountsInWords(Count):
    @property
    def counters(self):
        return {"turns": "many"}


class ForgetsItsTurns(Count):
    def restore(self, state):
        self.number = 0


class Kit(EnvKit):
    env = Count

    def make_env(self):
        return self.env()

    def task(self):
        return {"from": 0}

    def answers(self):
        return ["1", "2", "3"]

    def answers_into_a_limit(self):
        return ["no"] * 5


class TestCountKeepsTheContract(Kit):
    pass


BROKEN = [
    (EndsEarly, "env/contract", "ended before your last answer"),
    (ReturnsThree, "env/contract", "a tuple of 3"),
    (NeedsReset, "env/close", "AttributeError"),
    (Draws, "env/determinism", "seeded by the task"),
    (SharedByAll, "env/isolation", "keep state on the instance"),
    (BothEndings, "env/endings", "terminated and truncated"),
    (LimitTerminates, "env/truncation", "is not truncated"),
    (NeverCut, "env/truncation", "is not truncated"),
    (OddRole, "env/observations", "no role of a chat"),
    (ContentIsANumber, "env/observations", "typed parts"),
    (ToolWithoutSchema, "env/observations", "a tool without parameters"),
    (RewritesThePast, "env/no-rewriting", "changed after it was shown"),
    (CrashesOnWords, "env/odd-answers", "ValueError"),
    (CountsInWords, "env/counters", "'many'"),
    (ForgetsItsTurns, "env/snapshot", "plays otherwise"),
]


@pytest.mark.parametrize(("env", "rule", "why"), BROKEN, ids=[env.__name__ for env, *_ in BROKEN])
def test_a_broken_environment_fails_its_rule(told, env, rule, why):
    assert why in told(type("BrokenKit", (Kit,), {"env": env}), rule)


def test_every_rule_of_environments_has_a_broken_one():
    assert {rule for _, rule, _ in BROKEN} == set(rules_of(EnvKit))
