"""Mistakes made on purpose, to show that a certificate notices them.

``certify`` applies one when it is asked to with ``--fault``; nothing else imports this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from agentr1_backend_trl.rows_to_tensors import Chunk
from agentr1_backend_trl.tree_chunk import TreeChunk
from agentr1_core.errors import ConfigError
from agentr1_core.mdp import Group
from agentr1_core.rows import TokenTree


def damage_tree(fault: str | None) -> Callable[[TreeChunk], TreeChunk] | None:
    """What a fault does to a tree, if anything."""
    if fault == "positions":
        return lambda chunk: replace(chunk, tree=replace(chunk.tree, depths=_line(chunk.tree)))
    if fault == "shift":
        return lambda chunk: replace(chunk, tree=replace(chunk.tree, parents=_line(chunk.tree) - 1))
    return None


def damage_chunk(fault: str | None) -> Callable[[Chunk], None] | None:
    """The same on a chunk of rows."""
    damage = damage_tree(fault)
    if damage is None:
        return None

    def change(chunk: Chunk) -> None:
        if "tree" in chunk:
            chunk["tree"] = damage(chunk["tree"])

    return change


def retokenise(groups: Sequence[Group]) -> list[Group]:
    """The groups with one sampled token exchanged, as text that is encoded again may do."""
    first, *others = groups
    trajectory = first.trajectories[0]
    step = trajectory.steps[0]
    ids = step.action.token_ids.copy()
    ids[0] = ids[0] - 1 if ids[0] else 1
    damaged = replace(step, action=replace(step.action, token_ids=ids))
    trajectory = replace(trajectory, steps=(damaged, *trajectory.steps[1:]))
    return [replace(first, trajectories=(trajectory, *first.trajectories[1:])), *others]


def change_context(groups: Sequence[Group]) -> list[Group]:
    """The groups with one prompt that repeats the turn before it with one token exchanged.

    Raises:
        ConfigError: No prompt repeats an earlier turn.
    """
    for number, group in enumerate(groups):
        for member, trajectory in enumerate(group.trajectories):
            for turn, (before, after) in enumerate(zip(trajectory.steps, trajectory.steps[1:], strict=False), start=1):
                if not after.continued or not len(before.action):
                    continue
                ids = after.observation.prompt_ids.copy()
                place = len(before.prompt_ids)
                ids[place] = ids[place] - 1 if ids[place] else 1
                damaged = replace(after, observation=replace(after.observation, prompt_ids=ids))
                steps = (*trajectory.steps[:turn], damaged, *trajectory.steps[turn + 1 :])
                members = list(group.trajectories)
                members[member] = replace(trajectory, steps=steps)
                return [*groups[:number], replace(group, trajectories=tuple(members)), *groups[number + 1 :]]
    raise ConfigError(
        "The mistake 'context' needs a prompt that continues the turn before it, and every one was rewritten.",
        "Make it on a run whose context is appended to, or play more groups (-n).",
    )


def _line(tree: TokenTree) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.arange(len(tree), dtype=np.int32)
