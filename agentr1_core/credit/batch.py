"""All steps of all trajectories as flat arrays: what a credit estimator reads.

Backends build a ``CreditBatch`` from the groups they collected, join those of several ranks with ``concat`` and
cut the per-token result back with ``split``. Nothing here judges a step; it only checks that rewards and step
indices can be trusted.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentr1_core.errors import DataError, EnvError, RewardError
from agentr1_core.mdp import Group, Step, Trajectory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class CreditBatch:
    """Flat view of N steps of M trajectories with T sampled tokens, ordered by trajectory, then step index.

    A rank without any trajectory is an empty batch; it is allowed everywhere.
    """

    #: Dense group index 0..G-1 of each trajectory, ``(M,)``.
    group: Ints
    #: Name of the group of each trajectory, ``(M,)``; the same name on two ranks means the same group.
    group_id: tuple[str, ...]
    #: Trajectory index of each step, ``(N,)``, non-decreasing; every trajectory has at least one step.
    trajectory: Ints
    #: Reward of each step, ``(N,)``; NaN where the environment gave none.
    reward: Floats
    #: Sampled tokens of each step's action, ``(N,)``; may be 0.
    n_tokens: Ints
    #: Whether the task ended after the step, ``(N,)``.
    terminated: Bools
    #: Whether a limit cut the episode after the step, ``(N,)``.
    truncated: Bools
    #: Name of the state each step saw, ``(N,)``: what the environment called it, else a hash of its prompt tokens;
    #: ``None`` where there is neither.
    anchor: tuple[str | None, ...]
    #: V(observation) of each step, taken at its last prompt token, ``(N,)``, for estimators with a critic.
    step_values: Floats | None = None
    #: V(next observation) of each step, ``(N,)``, to bootstrap where truncated; NaN where nothing can be said, for
    #: example because that observation exceeds the context.
    next_values: Floats | None = None
    #: The value before each sampled token, ``(T,)``.
    token_values: Floats | None = None
    #: Log-prob of each sampled token when it was sampled, ``(T,)``; not finite where the engine gave none.
    sampled_logprobs: Floats | None = None
    #: Log-prob of each sampled token under a teacher that read the same tokens before it, ``(T,)``.
    teacher_logprobs: Floats | None = None

    def __post_init__(self) -> None:
        n = len(self.trajectory)
        if len(self.group_id) != len(self.group):
            raise ValueError(f"CreditBatch has {len(self.group)} group indices but {len(self.group_id)} group ids.")
        for name in ("reward", "n_tokens", "terminated", "truncated", "anchor", "step_values", "next_values"):
            values = getattr(self, name)
            if values is not None and len(values) != n:
                raise ValueError(f"CreditBatch.{name} has {len(values)} entries for {n} steps.")
        for name in ("token_values", "sampled_logprobs", "teacher_logprobs"):
            values = getattr(self, name)
            if values is not None and len(values) != self.total_tokens:
                raise ValueError(f"CreditBatch.{name} has {len(values)} entries for {self.total_tokens} tokens.")
        if not np.array_equal(np.unique(self.trajectory), np.arange(len(self.group))) or np.any(
            np.diff(self.trajectory) < 0
        ):
            raise ValueError("CreditBatch.trajectory must count 0..M-1 in order, with a step for each trajectory.")
        infinite = np.flatnonzero(np.isinf(self.reward))
        if len(infinite):
            raise RewardError(
                f"Step row {infinite[0]} (trajectory {self.trajectory[infinite[0]]}) has an infinite reward.",
                "Make the reward function return a finite number, or None for no reward.",
            )

    @classmethod
    def from_groups(cls, groups: Sequence[Group]) -> CreditBatch:
        """Flatten groups; their failed trajectories are left out. Groups with the same id are one group.

        A trajectory that a limit ended counts as truncated at its last step, also when the environment did not say so.

        Raises:
            RewardError: A reward is NaN, infinite or no number; names the trajectory and the step.
            DataError: The tokens of a step are not known.
            EnvError: A trajectory has no steps, its step indices are not 0..n-1, or its id occurs twice in a group.
        """
        keys: list[str] = []
        owners: list[int] = []
        steps: list[Step] = []
        rewards: list[float] = []
        cut: list[bool] = []
        seen: set[tuple[str, str]] = set()
        for group in groups:
            for trajectory in group.trajectories:
                if (group.id, trajectory.id) in seen:
                    raise EnvError(
                        f"Trajectory '{trajectory.id}' occurs twice in group '{group.id}'.",
                        "Give each trajectory its own id, and pass each group once.",
                    )
                seen.add((group.id, trajectory.id))
                ordered = ordered_steps(trajectory)
                owners += [len(keys)] * len(ordered)
                keys.append(group.id)
                steps += ordered
                rewards += [_checked_reward(trajectory, step) for step in ordered]
                limits = [step.truncated for step in ordered]
                limits[-1] |= trajectory.stop_reason.is_truncation and not ordered[-1].terminated
                cut += limits
        return cls(
            group=_dense(keys),
            group_id=tuple(keys),
            trajectory=np.asarray(owners, dtype=np.int64),
            reward=np.asarray(rewards, dtype=np.float64),
            n_tokens=np.asarray([len(step.action) for step in steps], dtype=np.int64),
            terminated=np.asarray([step.terminated for step in steps], dtype=np.bool_),
            truncated=np.asarray(cut, dtype=np.bool_),
            anchor=tuple(_anchor(step) for step in steps),
        )

    @staticmethod
    def concat(parts: Sequence[CreditBatch]) -> CreditBatch:
        """Join the batches of several ranks, in order. A group that was split over ranks is whole again by its id.

        Values are joined where every part has them and must otherwise be missing from every part.
        """
        if not parts:
            return CreditBatch.from_groups(())
        offsets = np.cumsum([0] + [len(part.group) for part in parts[:-1]])
        keys = tuple(key for part in parts for key in part.group_id)
        return CreditBatch(
            group=_dense(keys),
            group_id=keys,
            trajectory=np.concatenate([p.trajectory + offset for p, offset in zip(parts, offsets, strict=True)]),
            reward=np.concatenate([part.reward for part in parts]),
            n_tokens=np.concatenate([part.n_tokens for part in parts]),
            terminated=np.concatenate([part.terminated for part in parts]),
            truncated=np.concatenate([part.truncated for part in parts]),
            anchor=tuple(name for part in parts for name in part.anchor),
            step_values=_join_optional("step_values", [part.step_values for part in parts]),
            next_values=_join_optional("next_values", [part.next_values for part in parts]),
            token_values=_join_optional("token_values", [part.token_values for part in parts]),
            sampled_logprobs=_join_optional("sampled_logprobs", [part.sampled_logprobs for part in parts]),
            teacher_logprobs=_join_optional("teacher_logprobs", [part.teacher_logprobs for part in parts]),
        )

    def split(self, per_token: NDArray[Any], n_steps: Sequence[int]) -> list[NDArray[Any]]:
        """Cut a ``(T,)`` array into consecutive parts of ``n_steps`` steps each: the inverse of ``concat``."""
        if len(per_token) != self.total_tokens or sum(n_steps) != self.n_steps:
            raise ValueError(
                f"Cannot split {len(per_token)} tokens and {sum(n_steps)} steps: "
                f"the batch has {self.total_tokens} tokens and {self.n_steps} steps."
            )
        token_ends = np.concatenate([[0], np.cumsum(self.n_tokens)])
        edges = token_ends[np.cumsum([0, *n_steps])]
        return [per_token[start:end] for start, end in pairwise(edges)]

    @property
    def n_trajectories(self) -> int:
        """M."""
        return len(self.group)

    @property
    def n_steps(self) -> int:
        """N."""
        return len(self.trajectory)

    @property
    def n_groups(self) -> int:
        """G."""
        return int(self.group.max()) + 1 if len(self.group) else 0

    @property
    def total_tokens(self) -> int:
        """T: sampled tokens of all steps."""
        return int(self.n_tokens.sum())

    @property
    def scorable(self) -> Bools:
        """Whether any step of each trajectory has a reward, ``(M,)``."""
        rewarded = np.bincount(self.trajectory, weights=~np.isnan(self.reward), minlength=self.n_trajectories)
        return rewarded > 0

    @property
    def cut_short(self) -> Bools:
        """Whether a limit ended each trajectory before the task did, ``(M,)``."""
        cut = np.bincount(self.trajectory, weights=self.truncated & ~self.terminated, minlength=self.n_trajectories)
        return cut > 0

    @property
    def last(self) -> Bools:
        """Whether each step is the last one of its trajectory, ``(N,)``."""
        return np.append(np.diff(self.trajectory) != 0, True)[: self.n_steps]

    @property
    def rewards(self) -> Floats:
        """Reward of each step, ``(N,)``; zero where there is none."""
        return np.where(np.isnan(self.reward), 0.0, self.reward)

    def trajectory_returns(self) -> Floats:
        """Undiscounted return of each trajectory, ``(M,)``; a missing reward counts as zero."""
        return np.bincount(self.trajectory, self.rewards, self.n_trajectories).astype(np.float64)

    def returns_to_go(self, gamma: float) -> Floats:
        """``G_t = r_t + gamma * G_{t+1}`` within each trajectory, ``(N,)``; one step is one unit of time."""
        rewards, last = self.rewards, self.last
        found = np.zeros(self.n_steps)
        ahead = 0.0
        for i in range(self.n_steps - 1, -1, -1):
            ahead = rewards[i] + (0.0 if last[i] else gamma * ahead)
            found[i] = ahead
        return found

    def steps_to_tokens(self, per_step: NDArray[Any]) -> NDArray[Any]:
        """Give every sampled token its step's number: ``(N,)`` to ``(T,)``."""
        return np.repeat(per_step, self.n_tokens)

    def trajectories_to_tokens(self, per_trajectory: NDArray[Any]) -> NDArray[Any]:
        """Give every sampled token its trajectory's number: ``(M,)`` to ``(T,)``."""
        return self.steps_to_tokens(per_trajectory[self.trajectory])


def ordered_steps(trajectory: Trajectory) -> list[Step]:
    """The steps by index, checked to be 0..n-1 without gap or repetition, and to be of known tokens.

    Raises:
        DataError: A step came as text, without the ids of its tokens.
        EnvError: There are no steps, or an index is missing or occurs twice.
    """
    steps = sorted(trajectory.steps, key=lambda step: step.index)
    if not steps:
        raise EnvError(
            f"Trajectory '{trajectory.id}' of group '{trajectory.group_id}' has no steps.",
            "List an episode that ended before its first action under the group's failed trajectories.",
        )
    indices = [step.index for step in steps]
    if indices != list(range(len(steps))):
        raise EnvError(
            f"Trajectory '{trajectory.id}' has the step indices {indices}; they must be 0..{len(steps) - 1}.",
            "Number the steps of a trajectory in the order in which they happened.",
        )
    for step in steps:
        if not step.action.trainable:
            raise DataError(
                f"Trajectory '{trajectory.id}', step {step.index}: its tokens are not known, since a chat endpoint "
                "answered in text; it cannot be trained.",
                "Collect with an engine that gives token ids, such as `transformers` or `vllm`.",
            )
    return steps


def _anchor(step: Step) -> str | None:
    """The environment's name for the state, else one made from the exact tokens the model saw."""
    if step.observation.anchor is not None:
        return step.observation.anchor
    ids = step.observation.prompt_ids
    if ids is None:
        return None
    return "tokens:" + hashlib.blake2b(np.ascontiguousarray(ids, dtype=np.int32).tobytes(), digest_size=16).hexdigest()


def _checked_reward(trajectory: Trajectory, step: Step) -> float:
    if step.reward is None:
        return math.nan
    where = f"Trajectory '{trajectory.id}' (group '{trajectory.group_id}'), step {step.index}: the reward"
    mend = "Make the environment and the reward functions return a finite number, or None for no reward."
    try:
        value = float(step.reward)
    except (TypeError, ValueError) as error:
        raise RewardError(f"{where} is {step.reward!r}, which is no number.", mend) from error
    if not math.isfinite(value):
        raise RewardError(f"{where} is {value}.", mend)
    return value


def _dense(keys: Iterable[str]) -> Ints:
    index: dict[str, int] = {}
    return np.asarray([index.setdefault(key, len(index)) for key in keys], dtype=np.int64)


def _join_optional(name: str, arrays: Sequence[Floats | None]) -> Floats | None:
    present = [array for array in arrays if array is not None]
    if present and len(present) != len(arrays):
        raise ValueError(f"Some of the batches to join have {name} and some have none.")
    return np.concatenate(present) if present else None
