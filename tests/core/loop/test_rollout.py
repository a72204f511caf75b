"""The collector: limits, deadlines, retries, failures and closing, each on a real loop with a scripted model."""

import asyncio
from typing import ClassVar

import pytest

from agentr1_core.blocking import BlockingLoop
from agentr1_core.engine import SamplingParams
from agentr1_core.env import AgentEnv, StepResult
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import Policy, RolloutLimits
from agentr1_core.errors import EnvError
from agentr1_core.flow import AgentFlowBase, SingleStepFlow
from agentr1_core.mdp import FinishReason, StopReason
from agentr1_core.render import create_chat_renderer
from agentr1_core.reward import RewardSum, exact_match
from agentr1_core.rollout import Rollouts
from agentr1_core.task import Task
from agentr1_core.testing.scripted_engine import ScriptedEngine


class Countdown(AgentEnv):
    """Goes on for ``task["n"]`` turns; the last one is rewarded."""

    opened: ClassVar[list["Countdown"]] = []

    def __init__(self, step=None):
        self.closed = 0
        self._step = step
        Countdown.opened.append(self)

    async def reset(self, task):
        self.left = task["n"]
        self.messages = [{"role": "user", "content": f"{self.left} to go"}]
        return self.messages

    async def step(self, action):
        if self._step is not None:
            return await self._step(self)
        self.left -= 1
        self.messages = [*self.messages, action.message, {"role": "user", "content": f"{self.left} to go"}]
        return self.messages, float(self.left == 0), self.left == 0, False, {}

    async def close(self):
        self.closed += 1


@pytest.fixture(autouse=True)
def every_environment_is_closed():
    Countdown.opened = []
    yield
    assert [env.closed for env in Countdown.opened] == [1] * len(Countdown.opened)


@pytest.fixture
def rollouts(tokenizer):
    def make(flow=None, script=("ok",), limits=None, max_tokens=64, engine=None, **options):
        engine = engine or ScriptedEngine(tokenizer, script)
        policy = Policy(engine, create_chat_renderer(tokenizer), SamplingParams(max_tokens=max_tokens))
        limits = RolloutLimits(**{"retry_delay_s": 0.001, **(limits or {})})
        return Rollouts(flow or AgentEnvLoop(lambda task: Countdown()), policy, limits=limits, **options)

    return make


def collect(run, rollouts, *tasks, **options):
    async def all_of_it():
        try:
            return await rollouts.collect([Task(task) for task in tasks], **options)
        finally:
            await rollouts.close()

    return run(all_of_it())


def only(collection):
    (trajectory,) = (*collection.trajectories, *collection.failed)
    return trajectory


def test_steps_store_what_was_seen_sampled_answered_and_rewarded(run, rollouts, tokenizer):
    trajectory = only(collect(run, rollouts(), {"n": 2}))
    first, last = trajectory.steps
    assert trajectory.stop_reason is StopReason.TERMINATED
    assert tokenizer.decode(first.prompt_ids) == "<|im_start|>user\n2 to go<|im_end|>\n<|im_start|>assistant\n"
    assert tokenizer.decode(first.action.token_ids) == "ok<|im_end|>"
    assert first.action.logprobs.tolist() == [-1.0, -1.0, -1.0]
    assert first.feedback == ({"role": "user", "content": "1 to go"},)
    assert (first.reward, last.reward, trajectory.ret) == (0.0, 1.0, 1.0)
    assert (first.terminated, last.terminated, last.truncated) == (False, True, False)
    assert first.next_observation is last.observation
    assert last.continued
    assert last.prompt_ids.tolist()[: len(first.prompt_ids) + 3] == [*first.prompt_ids, *first.action.token_ids]
    assert trajectory.counters["prompts/continued"] == 1
    assert trajectory.counters["tokens/continued"] == len(last.prompt_ids)
    assert trajectory.rewards == {"env": 1.0}


@pytest.mark.parametrize(
    ("limits", "n_steps", "reason"),
    [
        ({"max_steps": 3}, 3, StopReason.MAX_STEPS),
        ({"max_tokens_per_episode": 7}, 3, StopReason.TOKEN_BUDGET),  # 3 tokens a turn: 3, 6, then 1
        ({"max_context": 80}, 2, StopReason.CONTEXT_OVERFLOW),
    ],
)
def test_limits_are_checked_before_the_call_and_truncate(run, rollouts, limits, n_steps, reason):
    collector = rollouts(limits=limits)
    trajectory = only(collect(run, collector, {"n": 9}))
    assert trajectory.stop_reason is reason
    assert len(trajectory.steps) == n_steps == len(collector.policy.engine.calls)
    last = trajectory.steps[-1]
    assert (last.terminated, last.truncated) == (False, True)
    assert last.next_observation.prompt_ids is not None  # a critic can value it
    assert trajectory.error


def test_token_budget_shortens_the_last_action(run, rollouts):
    trajectory = only(collect(run, rollouts(limits={"max_tokens_per_episode": 7}), {"n": 9}))
    assert [len(step.action) for step in trajectory.steps] == [3, 3, 1]
    assert trajectory.steps[-1].action.finish_reason is FinishReason.LENGTH


def test_first_prompt_that_does_not_fit_fails_with_its_cause(run, rollouts):
    collector = rollouts(limits={"max_context": 10})
    with pytest.raises(EnvError, match=r"1 times: no step was taken \(context_overflow\): the prompt has 26 tokens"):
        collect(run, collector, {"n": 1})


async def hang(env):
    await asyncio.sleep(60)


async def explode(env):
    raise RuntimeError("boom")


def test_hanging_environment_meets_its_deadline_and_keeps_its_step(run, rollouts):
    flow = AgentEnvLoop(lambda task: Countdown(hang))
    trajectory = only(collect(run, rollouts(flow, limits={"step_timeout_s": 0.05}), {"n": 1}))
    assert trajectory.stop_reason is StopReason.TIMEOUT
    assert "in hang (" in trajectory.error
    assert trajectory.steps[0].truncated


def test_episode_deadline_aborts_sampling_and_keeps_what_was_said(run, rollouts, tokenizer):
    engine = ScriptedEngine(tokenizer, ["x" * 50], delay_s=0.01)
    trajectory = only(collect(run, rollouts(engine=engine, limits={"episode_timeout_s": 0.1}), {"n": 1}))
    assert trajectory.stop_reason is StopReason.TIMEOUT
    action = trajectory.steps[0].action
    assert action.finish_reason is FinishReason.ABORT
    assert 0 < len(action) < 50
    assert set(tokenizer.decode(action.token_ids)) == {"x"}


def test_failed_episode_is_reported_and_leaves_its_group_standing(run, rollouts):
    built = iter(range(99))
    flow = AgentEnvLoop(lambda task: Countdown(explode if next(built) == 1 else None))
    collection = collect(run, rollouts(flow), {"n": 1}, group_size=4)
    (group,) = collection.groups
    assert len(group.trajectories) == 3
    (failed,) = group.failed
    assert (failed.stop_reason, failed.error) == (StopReason.ENV_ERROR, "RuntimeError: boom")
    assert collection.counters["stop/env_error"] == 1


def test_group_below_its_minimum_is_left_out_whole(run, rollouts):
    built = iter(range(99))
    flow = AgentEnvLoop(lambda task: Countdown(explode if next(built) < 3 else None))
    first, second = collect(run, rollouts(flow), {"n": 1}, {"n": 1}, group_size=4).groups
    assert (len(first.trajectories), len(first.failed)) == (0, 4)
    assert "only 1 of the group's 4 episodes are usable, 2 are needed" in first.failed[0].error
    assert len(second.trajectories) == 4


def test_engine_faults_are_retried_and_counted(run, rollouts, tokenizer):
    trajectory = only(collect(run, rollouts(engine=ScriptedEngine(tokenizer, ["ok"], faults=2)), {"n": 1}))
    assert trajectory.stop_reason is StopReason.TERMINATED
    assert trajectory.counters["engine/faults"] == 2


def test_lasting_engine_fault_fails_every_episode_with_its_cause(run, rollouts, tokenizer):
    with pytest.raises(EnvError, match="2 times: The scripted engine was told to fail"):
        collect(run, rollouts(engine=ScriptedEngine(tokenizer, ["ok"], faults=99)), {"n": 1}, group_size=2)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (("next", float("nan"), False, False, {}), "returned the reward nan"),
        ((None, 0.0, False, {}), "no observation although the episode goes on"),
        (("a", 1.0), "returned a tuple of 2"),
        ((3, 1.0, False, {}), "observation of type int"),
    ],
)
def test_environment_that_breaks_its_contract_is_told_how(run, rollouts, answer, problem):
    async def step(env):
        return answer

    with pytest.raises(EnvError, match=problem):
        collect(run, rollouts(AgentEnvLoop(lambda task: Countdown(step))), {"n": 1})


def test_four_tuple_and_plain_methods_are_accepted(run, rollouts):
    class Old:
        def reset(self, task):
            return "state", {}

        def step(self, action):
            return "state", 1.0, True, {"TimeLimit.truncated": True}

        def close(self):
            closed.append(1)

        counters: ClassVar[dict] = {}

    closed = []
    trajectory = only(collect(run, rollouts(AgentEnvLoop(lambda task: Old())), {}))
    assert (trajectory.stop_reason, trajectory.steps[-1].truncated, closed) == (StopReason.TRUNCATED, True, [1])


def test_thousand_episodes_with_bounded_concurrency(run, rollouts):
    in_flight = peak = 0

    class Counting(Countdown):
        async def step(self, action):
            nonlocal in_flight, peak
            in_flight += 1
            peak = max(peak, in_flight)
            await asyncio.sleep(0)
            in_flight -= 1
            return await super().step(action)

    collection = collect(
        run, rollouts(AgentEnvLoop(lambda task: Counting()), concurrency=50), *[{"n": 2}] * 250, group_size=4
    )
    assert len(collection.trajectories) == 1000
    assert 1 < peak <= 50
    assert len({trajectory.id for trajectory in collection.trajectories}) == 1000


def test_cancelled_collection_closes_every_environment(run, rollouts):
    async def cancelled():
        collector = rollouts(AgentEnvLoop(lambda task: Countdown(hang)))
        collecting = asyncio.create_task(collector.collect([Task({"n": 1})] * 20))
        await asyncio.sleep(0.2)
        collecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await collecting
        await collector.close()
        assert collector.policy.engine.closed == 1

    run(cancelled())
    assert len(Countdown.opened) == 20  # closed, as the fixture checks


def test_ctrl_c_closes_every_environment(rollouts):
    import os
    import signal
    import threading

    collector = rollouts(AgentEnvLoop(lambda task: Countdown(hang)))
    loop = BlockingLoop()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        loop.run(collector.collect([Task({"n": 1})] * 3))
    loop.run(collector.close())
    loop.close()
    assert len(Countdown.opened) == 3


def test_environment_that_does_not_close_is_counted_not_lost(run, rollouts):
    class Sticky(Countdown):
        async def close(self):
            await super().close()
            raise OSError("stuck")

    trajectory = only(collect(run, rollouts(AgentEnvLoop(lambda task: Sticky())), {"n": 1}))
    assert trajectory.stop_reason is StopReason.TERMINATED
    assert trajectory.counters["env/close_failed"] == 1


def test_single_step_flow_with_a_reward(run, rollouts):
    collector = rollouts(SingleStepFlow(), script=["The Paris!"], reward=RewardSum({"em": exact_match}, {"em": 2.0}))
    trajectory = only(collect(run, collector, {"prompt": "Capital?", "reward_model": {"ground_truth": ["paris"]}}))
    assert (trajectory.ret, trajectory.rewards) == (2.0, {"em": 2.0})
    assert trajectory.steps[-1].terminated


@pytest.mark.parametrize(
    ("reward", "problem"),
    [
        (lambda trajectory: float("nan"), "Reward 'mine' returned nan"),
        (lambda trajectory: "good", "Reward 'mine' returned 'good'"),
        (lambda trajectory: 1 / 0, "Reward 'mine' raised ZeroDivisionError"),
        (exact_match, "needs a ground truth"),
    ],
)
def test_bad_reward_names_the_function(run, rollouts, reward, problem):
    with pytest.raises(EnvError, match=problem):
        collect(run, rollouts(SingleStepFlow(), reward=RewardSum({"mine": reward})), {"prompt": "?"})


def test_threads_and_other_models_of_a_flow(run, rollouts, tokenizer):
    """Two threads of the policy are recorded, each continuing itself; the judge answers but adds no step."""

    class Debate(AgentFlowBase):
        async def run(self, task, ctx):
            said = {}
            for thread in ("pro", "con", "pro"):
                before = said.get(thread, ())
                shown = (*before, {"role": "user", "content": "Argue."})
                action = await ctx.generate(shown, thread=thread)
                ctx.record(action, StepResult(None, 0.0))
                said[thread] = (*shown, action.message)
            verdict = await ctx.generate("Who won?", engine="judge", max_tokens=5)
            return float(verdict.text == "pro")

    judge = Policy(ScriptedEngine(tokenizer, ["pro"]), create_chat_renderer(tokenizer))
    collector = rollouts(Debate(), others={"judge": judge})
    trajectory = only(collect(run, collector, {}))
    assert [step.continued for step in trajectory.steps] == [False, False, True]
    assert trajectory.steps[0].next_observation is trajectory.steps[2].observation
    assert (trajectory.ret, trajectory.stop_reason) == (1.0, StopReason.COMPLETED)
    assert judge.engine.calls[0].max_tokens == 5
    assert judge.engine.closed == 1


def test_seeds_differ_between_turns_and_repeat_between_runs(run, rollouts):
    def seeds(seed):
        collector = rollouts(seed=seed)
        collect(run, collector, {"n": 2}, group_size=2)
        return sorted(call.seed for call in collector.policy.engine.calls)

    assert len(set(seeds(1))) == 4
    assert seeds(1) == seeds(1) != seeds(2)


def test_hooks_are_told_of_steps_trajectories_and_groups(run, rollouts):
    class Log:
        def __init__(self):
            self.lines = []

        def agentr1_step(self, *, step, trajectory_id):
            self.lines.append(("step", step.index, trajectory_id))

        def agentr1_trajectory(self, *, trajectory):
            self.lines.append(("trajectory", trajectory.id))

        def agentr1_group(self, *, group):
            self.lines.append(("group", group.id))

    log = Log()
    collect(run, rollouts(hooks=log), {"n": 1})
    assert log.lines == [("step", 0, "0/0/0"), ("trajectory", "0/0/0"), ("group", "0/0")]
    collect(run, rollouts(hooks=log), {"n": 1}, training=False)
    assert log.lines[3:] == [("trajectory", "eval/0/0")]
