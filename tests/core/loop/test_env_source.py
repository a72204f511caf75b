"""Environments that share something: opened once, told what is played, closed on every path."""

from typing import ClassVar

import pytest

from agentr1_core import AgentEnv, EnvSource, StepResult, Task
from agentr1_core.config import RunConfig
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import Policy
from agentr1_core.errors import ConfigError, EnvError
from agentr1_core.job.play import build_flow
from agentr1_core.plugins import PluginManager
from agentr1_core.rollout import Rollouts
from agentr1_core.testing.play import Characters, PlainRenderer
from agentr1_core.testing.scripted_engine import ScriptedEngine


class Desk(EnvSource):
    """One desk that all episodes sit at."""

    opened: ClassVar[list] = []

    def __init__(self, lamp="off"):
        self.lamp = lamp
        self.events = []
        Desk.opened.append(self)

    async def start(self):
        self.events.append("start")

    def expect(self, tasks):
        self.events.append([task["n"] for task in tasks])

    def make(self, task):
        return Sitting(self, task)

    async def close(self):
        self.events.append("close")


class Sitting(AgentEnv):
    def __init__(self, desk, task):
        self.desk = desk

    async def reset(self, task):
        assert self.desk.events[0] == "start"
        if task["n"] < 0:
            raise EnvError("no such chair")
        return f"The lamp is {self.desk.lamp}."

    async def step(self, action):
        return StepResult(None, 1.0, terminated=True)


def loop_of(env):
    config = RunConfig.model_validate({"env": env})
    return build_flow(config, PluginManager.discover(), None, [])()


def collect(run, flow, numbers, group_size=1):
    policy = Policy(ScriptedEngine(Characters(), ["ok"]), PlainRenderer())
    rollouts = Rollouts(flow, policy, min_group_size=1)

    async def all_of_it():
        try:
            return await rollouts.collect([Task({"n": n}) for n in numbers], group_size)
        finally:
            await rollouts.close()

    return run(all_of_it())


def test_a_run_file_names_a_source_and_all_episodes_share_it(run):
    Desk.opened.clear()
    flow = loop_of({"name": f"{__name__}:Desk", "lamp": "on"})
    desk = Desk.opened[-1]
    played = collect(run, flow, [1, 2], group_size=2)
    assert [t.steps[0].observation.messages[0]["content"] for t in played.trajectories] == ["The lamp is on."] * 4
    assert desk.events == ["start", [1, 1, 2, 2], "close"]


def test_it_is_closed_when_episodes_fail(run):
    desk = Desk()
    with pytest.raises(EnvError, match="no such chair"):
        collect(run, AgentEnvLoop(desk.make, source=desk), [-1])
    assert desk.events == ["start", [-1], "close"]


def test_a_wrong_setting_is_told_when_the_job_is_built():
    with pytest.raises(ConfigError, match=r"env.lmap.*no setting 'lmap'"):
        loop_of({"name": f"{__name__}:Desk", "lmap": "on"})
