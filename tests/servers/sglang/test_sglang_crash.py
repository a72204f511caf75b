"""The server is killed in the middle of rollouts: nothing hangs, and it comes back with the current weights."""

import asyncio
import os
import signal
import subprocess

import numpy as np

from agentr1_core.engine import SamplingParams, WeightSource
from agentr1_core.env import AgentEnv
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import Policy, RolloutLimits
from agentr1_core.mdp import StopReason
from agentr1_core.render import create_chat_renderer
from agentr1_core.rollout import Rollouts
from agentr1_core.task import Task


class Talk(AgentEnv):
    """Four turns, whatever is said."""

    async def reset(self, task):
        self.messages = [{"role": "user", "content": f"Say something about {task['topic']}."}]
        return tuple(self.messages)

    async def step(self, action):
        self.messages += [action.message, {"role": "user", "content": "And more?"}]
        return tuple(self.messages), 1.0, len(self.messages) > 8, False, {}


def server_pid(guard):
    """The process that listens: the child of the guard."""
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(guard)], capture_output=True, text=True, check=True)
    return int(listed.stdout.split()[0])


def test_a_server_killed_in_the_middle_of_rollouts(engine, run, base, other, reference):
    from renderers.base import load_tokenizer

    run(engine.update_weights(WeightSource("file", path=other), 9))
    renderer = create_chat_renderer(load_tokenizer(str(base)), name="template")
    rollouts = Rollouts(
        AgentEnvLoop(lambda task: Talk()),
        Policy(engine, renderer, SamplingParams(max_tokens=96)),
        # Without a deadline of their own: on a busy machine a server takes minutes to start again.
        limits=RolloutLimits(max_steps=4, step_timeout_s=None, engine_retries=2, retry_delay_s=0.1),
        seed=3,
    )
    tasks = [Task({"topic": str(number)}, where=f"task {number}") for number in range(8)]
    guard = engine._managed._process._process.pid

    async def play():
        collecting = asyncio.create_task(rollouts.collect(tasks, 2, training=False))
        while sum(member.running for member in engine._fleet.members) < 8:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.3)
        os.kill(server_pid(guard), signal.SIGKILL)
        return await collecting

    found = run(play())
    played = [*found.trajectories, *found.failed]
    assert len(played) == 16
    assert found.counters["engine/faults"] > 0
    for trajectory in found.failed:
        assert trajectory.stop_reason is StopReason.ENGINE_ERROR
        assert trajectory.error
    assert found.trajectories  # the retries waited for the server to come back
    for trajectory in found.trajectories:
        for step in trajectory.steps:
            assert {span.version for span in step.action.version_spans} == {9}
            expected = reference(other, step.prompt_ids, step.action.token_ids)
            np.testing.assert_allclose(step.action.logprobs, expected, atol=1e-4)
    assert engine._managed.restarts == 1
    assert run(engine.health()).ready
