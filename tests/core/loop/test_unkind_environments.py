"""What environments, flows, engines and hooks may do wrong, and what becomes of the episode; on a real loop."""

import asyncio

import pytest

from agentr1_core import episode as episode_module
from agentr1_core.engine import SamplingParams
from agentr1_core.env import AgentEnv, StepResult
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import Policy, RolloutLimits
from agentr1_core.errors import EngineError
from agentr1_core.flow import AgentFlowBase
from agentr1_core.mdp import StopReason
from agentr1_core.render import create_chat_renderer
from agentr1_core.rollout import Play, Rollouts
from agentr1_core.task import Task
from agentr1_core.testing.scripted_engine import ScriptedEngine


class Endless(AgentEnv):
    async def reset(self, task):
        return "question"

    async def step(self, action):
        return "go on", 0.0, False, False, {}


@pytest.fixture
def play(run, tokenizer):
    def one(flow, engine=None, **limits):
        if isinstance(flow, type) and issubclass(flow, AgentEnv):
            flow = AgentEnvLoop(lambda task, env=flow: env())
        renderer = create_chat_renderer(tokenizer)
        policy = Policy(engine or ScriptedEngine(tokenizer, ["ok"]), renderer, SamplingParams(max_tokens=64))
        limits = RolloutLimits(**{"max_steps": 3, "retry_delay_s": 0.001, **limits})
        return run(Rollouts(flow, policy, limits=limits).play(Task({"prompt": "hi"}), "0/0"))

    return one


def test_timeout_of_the_environments_own_is_a_fault_and_no_deadline(play):
    class Socket(Endless):
        async def step(self, action):
            raise TimeoutError("the socket timed out")

    trajectory = play(Socket)
    assert trajectory.stop_reason is StopReason.ENV_ERROR
    assert "the socket timed out" in trajectory.error


def test_cancellation_that_nobody_asked_for_fails_one_episode_only(play):
    class Cancelled(Endless):
        async def step(self, action):
            inner = asyncio.ensure_future(asyncio.sleep(60))
            inner.cancel()
            await inner

    assert play(Cancelled).stop_reason is StopReason.ENV_ERROR


def test_environment_is_closed_although_its_counters_raise(play):
    closed = []

    class Uncountable(Endless):
        @property
        def counters(self):
            raise KeyError("calls")

        async def close(self):
            closed.append(self)

    assert play(Uncountable).stop_reason is StopReason.ENV_ERROR
    assert len(closed) == 1


def test_deadline_holds_although_the_engine_cannot_abort(play, tokenizer):
    class Gone(ScriptedEngine):
        async def abort(self, session):
            raise EngineError("the server is gone")

    engine = Gone(tokenizer, ["a long answer"], delay_s=30)
    trajectory = play(Endless, engine, step_timeout_s=0.05)
    assert trajectory.stop_reason is StopReason.TIMEOUT
    assert len(engine.calls) == 1  # not tried again after the deadline
    assert trajectory.counters["engine/abort_failed"] == 1


def test_deadline_holds_although_the_engines_abort_hangs(play, tokenizer, monkeypatch):
    class Stuck(ScriptedEngine):
        async def abort(self, session):
            await asyncio.sleep(3600)

    monkeypatch.setattr(episode_module, "ABORT_GRACE_S", 0.05)
    trajectory = play(Endless, Stuck(tokenizer, ["a long answer"], delay_s=30), step_timeout_s=0.05)
    assert trajectory.stop_reason is StopReason.TIMEOUT


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), "much"])
@pytest.mark.parametrize("way", ["returned", "recorded"])
def test_reward_of_a_flow_that_is_no_finite_number_fails_the_episode(play, way, wrong):
    class Rewarding(AgentFlowBase):
        async def run(self, task, ctx):
            action = await ctx.generate(task.prompt)
            ctx.record(action, StepResult(None, wrong if way == "recorded" else 0.0))
            return wrong if way == "returned" else None

    trajectory = play(Rewarding())
    assert trajectory.stop_reason is StopReason.ENV_ERROR
    assert str(wrong) in trajectory.error
    assert len(trajectory.steps) == 1


def test_engine_that_the_run_does_not_have_is_named(play):
    class Judged(AgentFlowBase):
        async def run(self, task, ctx):
            await ctx.generate(task.prompt, engine="judge")

    assert "asks the engine 'judge'; this run has: policy" in play(Judged()).error


def test_flow_that_ignores_the_limits_for_ever_meets_the_deadline(play):
    class Deaf(AgentFlowBase):
        async def run(self, task, ctx):
            while True:
                try:
                    await ctx.generate(task.prompt)
                except Exception:
                    continue

    trajectory = play(Deaf(), episode_timeout_s=0.2)
    assert trajectory.stop_reason is StopReason.MAX_STEPS
    assert len(trajectory.steps) == 3


def test_last_observation_that_the_template_rejects_fails_the_episode_alone(play, tokenizer, monkeypatch):
    class Odd(Endless):
        async def step(self, action):
            return {"role": "referee", "content": "time is up"}, 0.0, False, True, {}

    monkeypatch.setattr(
        tokenizer,
        "chat_template",
        "{% if messages[0].role == 'referee' %}{{ raise_exception('no referees') }}{% endif %}"
        + tokenizer.chat_template,
    )
    trajectory = play(Odd)
    assert trajectory.stop_reason is StopReason.ENV_ERROR
    assert "no referees" in trajectory.error
    assert len(trajectory.steps) == 1


def test_history_changed_in_place_is_a_rewrite_and_leaves_the_record_alone(play, tokenizer):
    class Forgetful(Endless):
        async def reset(self, task):
            self.messages = [{"role": "user", "content": "secret"}]
            return self.messages

        async def step(self, action):
            self.messages[0]["content"] = "forgotten"
            self.messages += [action.message, {"role": "user", "content": "go on"}]
            return self.messages, 0.0, False, False, {}

    first, second, third = play(Forgetful).steps
    assert first.observation.messages == ({"role": "user", "content": "secret"},)
    assert "secret" not in tokenizer.decode(second.prompt_ids)
    assert (second.continued, third.continued) == (False, True)


def test_answer_changed_in_place_is_a_rewrite(play, tokenizer):
    class Editor(Endless):
        async def reset(self, task):
            self.messages = [{"role": "user", "content": "question"}]
            return self.messages

        async def step(self, action):
            action.message["content"] = "edited"
            self.messages = [*self.messages, action.message, {"role": "user", "content": "go on"}]
            return self.messages, 0.0, False, False, {}

    second = play(Editor).steps[1]
    assert not second.continued
    assert "assistant\nedited<|im_end|>" in tokenizer.decode(second.prompt_ids)


def test_error_of_a_hook_is_raised_as_it_is(run, tokenizer):
    class FullDisk:
        def agentr1_trajectory(self, *, trajectory):
            raise OSError("no space left")

    policy = Policy(ScriptedEngine(tokenizer, ["ok"]), create_chat_renderer(tokenizer))
    rollouts = Rollouts(AgentEnvLoop(lambda task: Endless()), policy, hooks=FullDisk())
    with pytest.raises(OSError, match="no space left"):
        run(rollouts.collect_plays([Play(Task({}), "0"), Play(Task({}), "1")], training=False))
