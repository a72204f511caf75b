"""Each context policy, with what the model sees and the training rows that follow from it."""

import pytest

from agentr1_core.context import (
    Append,
    ContextEnv,
    DropObservations,
    KeepLast,
    Rewrite,
    Summarise,
)
from agentr1_core.credit import ESTIMATORS, CreditBatch
from agentr1_core.engine import SamplingParams
from agentr1_core.env import AgentEnv
from agentr1_core.env_loop import AgentEnvLoop
from agentr1_core.episode import Policy
from agentr1_core.mdp import Action, float_array, token_array
from agentr1_core.render import create_chat_renderer
from agentr1_core.rollout import Rollouts
from agentr1_core.rows import make_rows
from agentr1_core.task import Task
from agentr1_core.testing.scripted_engine import ScriptedEngine

ANSWER = {"role": "assistant", "content": "go"}


class Corridor(AgentEnv):
    """Four rooms; the history grows by what was said and the next room."""

    async def reset(self, task):
        self.room = 0
        self.history = [{"role": "system", "content": "S"}, {"role": "user", "content": "room 0"}]
        return self.history

    async def step(self, action):
        self.room += 1
        self.history = [*self.history, action.message, {"role": "user", "content": f"room {self.room}"}]
        return self.history, float(self.room == 4), self.room == 4, False, {}


def walk(run, tokenizer, policy):
    """Play one episode under a policy: what was shown at each step, the training rows, and the trajectory."""
    said = ScriptedEngine(tokenizer, lambda prompt: "sum" if "Summarise" in prompt.split("<|im_start|>")[-2] else "go")
    flow = AgentEnvLoop(lambda task: ContextEnv(Corridor(), policy()))
    rollouts = Rollouts(flow, Policy(said, create_chat_renderer(tokenizer), SamplingParams(max_tokens=9)))
    collection = run(rollouts.collect([Task({})], stream="t"))
    (trajectory,) = collection.trajectories
    shown = [" | ".join(m["content"] for m in step.observation.messages) for step in trajectory.steps]
    credit = ESTIMATORS["grpo"]().estimate(CreditBatch.from_groups(collection.groups))
    rows = make_rows(collection.groups, credit, merge="linear")
    assert rows.ledger.balances
    assert rows.ledger.sampled == trajectory.n_sampled
    return shown, [row.step_indices for row in rows.rows], trajectory


def test_append_shows_everything_and_makes_one_row(run, tokenizer):
    shown, rows, _ = walk(run, tokenizer, Append)
    assert shown[-1] == "S | room 0 | go | room 1 | go | room 2 | go | room 3"
    assert rows == [(0, 1, 2, 3)]


def test_keep_last_shows_the_opening_and_the_last_turns(run, tokenizer):
    shown, rows, _ = walk(run, tokenizer, lambda: KeepLast(1))
    assert shown == [
        "S | room 0",
        "S | room 0 | go | room 1",
        "S | room 0 | go | room 2",
        "S | room 0 | go | room 3",
    ]
    assert rows == [(0, 1), (2,), (3,)]


def test_drop_observations_keeps_what_was_said(run, tokenizer):
    shown, rows, _ = walk(run, tokenizer, lambda: DropObservations(1, "..."))
    assert shown[-1] == "S | room 0 | go | ... | go | ... | go | room 3"
    assert rows == [(0, 1), (2,), (3,)]


def test_summary_of_the_model_is_a_step_that_trains(run, tokenizer):
    shown, rows, trajectory = walk(
        run, tokenizer, lambda: Summarise(after=2, question="Summarise!", heading="So far: ")
    )
    assert shown == [
        "S | room 0",
        "S | room 0 | go | room 1",
        "S | room 0 | go | room 1 | go | room 2",
        "S | room 0 | go | room 1 | go | room 2 | go | room 3 | Summarise!",
        "S | room 0 | So far: sum",
    ]
    assert rows == [(0, 1, 2, 3), (4,)]
    summary = trajectory.steps[3]
    assert tokenizer.decode(summary.action.token_ids) == "sum<|im_end|>"
    assert summary.info == {"context": "summarised"}
    assert trajectory.ret == 1.0


def test_rewrite_shows_whatever_the_function_makes(run, tokenizer):
    shown, rows, _ = walk(run, tokenizer, lambda: Rewrite(lambda history: [history[-1]]))
    assert shown == ["room 0", "room 1", "room 2", "room 3"]
    assert rows == [(0,), (1,), (2,), (3,)]


@pytest.mark.parametrize("policy", [lambda: KeepLast(0), lambda: DropObservations(-1), lambda: Summarise(0)])
def test_senseless_settings_are_refused(policy):
    with pytest.raises(ValueError, match="needs"):
        policy()


def test_assistant_messages_of_the_opening_are_no_turns(run):
    opening = [
        {"role": "user", "content": "2+2"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "the task"},
    ]

    class Examples(Corridor):
        async def reset(self, task):
            self.room = 0
            self.history = opening
            return self.history

    async def two_turns():
        env = ContextEnv(Examples(), KeepLast(1))
        seen = [await env.reset(Task({}))]
        for _ in range(2):
            seen.append((await env.step(Action(token_array([]), float_array([]), message=ANSWER))).observation)
        return seen

    first, _, last = run(two_turns())
    assert list(first.messages) == opening
    assert list(last.messages) == [*opening, ANSWER, {"role": "user", "content": "room 2"}]
