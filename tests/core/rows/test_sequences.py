"""Sequences for scoring: every step once, continued ones together, cut ends with what would have come next."""

import dataclasses

import numpy as np

from agentr1_core.mdp import Action, Group, Observation, Step, StopReason, Trajectory, token_array
from agentr1_core.rows import lay_out_sequences


def step(index, prompt, action, after=None, **flags):
    seen = Observation((), prompt_ids=token_array(prompt))
    following = None if after is None else Observation((), prompt_ids=token_array(after))
    made = Action(token_array(action), np.full(len(action), -0.5, np.float32))
    return Step(index, seen, made, reward=0.0, next_observation=following, **flags)


def group(*steps, stop=StopReason.MAX_STEPS):
    return Group("g", {}, (Trajectory("t", "g", {}, steps, stop),))


def told(found):
    return [(one.ids.tolist(), one.actions, one.next_of) for one in found]


def test_continued_steps_share_a_sequence_and_rewritten_ones_do_not():
    steps = [step(0, [1, 2], [3]), step(1, [1, 2, 3, 4], [5, 6]), step(2, [1, 9], [7], terminated=True)]
    assert told(lay_out_sequences([group(*steps, stop=StopReason.TERMINATED)])) == [
        ([1, 2, 3, 4, 5, 6], ((0, 2, 3), (1, 4, 6)), None),
        ([1, 9, 7], ((2, 2, 3),), None),
    ]


def test_steps_are_numbered_over_all_groups():
    found = lay_out_sequences([group(step(0, [1], [2])), group(step(0, [1], [3]), step(1, [4], [5]))])
    assert [number for one in found for number, *_ in one.actions] == [0, 1, 2]


def test_cut_ends_are_laid_out_where_they_are_asked_for():
    appended = group(step(0, [1], [2], after=[1, 2, 3], truncated=True))
    assert told(lay_out_sequences([appended], ends="truncated")) == [([1, 2, 3], ((0, 1, 2),), 0)]
    assert told(lay_out_sequences([appended])) == [([1, 2], ((0, 1, 2),), None)]
    rewritten = group(step(0, [1], [2], after=[7, 8]))  # the limit is the trajectory's own
    assert told(lay_out_sequences([rewritten], ends="truncated")) == [([1, 2], ((0, 1, 2),), None), ([7, 8], (), 0)]


def test_ends_without_a_value_are_left_out():
    alone = [([1, 2], ((0, 1, 2),), None)]
    too_long = group(step(0, [1], [2], after=[1, 2, 3, 4], truncated=True))
    assert told(lay_out_sequences([too_long], ends="truncated", max_length=3)) == alone
    ended = group(step(0, [1], [2], after=[1, 2, 3], terminated=True), stop=StopReason.TERMINATED)
    assert told(lay_out_sequences([ended], ends="truncated")) == alone
    unrendered = group(dataclasses.replace(step(0, [1], [2]), next_observation=Observation(()), truncated=True))
    assert told(lay_out_sequences([unrendered], ends="truncated")) == alone


def test_a_step_without_tokens_is_continued_too():
    steps = [step(0, [1, 2], []), step(1, [1, 2, 3], [4])]
    assert told(lay_out_sequences([group(*steps)])) == [([1, 2, 3, 4], ((0, 2, 2), (1, 3, 4)), None)]
