"""A task small enough to differentiate by hand: the policy decides when to stop, so it decides how long episodes are.

The bias lab plays it. In each of H places the agent answers, searches, or gives up. Searching costs a little, takes
more tokens, and leads to the next place, where an answer is right more often. Two tasks differ in how easy they are and
share the policy, so that estimators which weigh groups unequally show it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentr1_core.credit import CreditBatch

Floats = NDArray[np.float64]

#: The actions, and how many tokens each takes. The first token decides; the others follow from it.
ANSWER, SEARCH, GIVE_UP = 0, 1, 2
TOKENS = np.array([1, 3, 2])
SEARCH_COST = 0.05
#: Chance that an answer is right, for each task and place.
SUCCESS = np.array([[0.15, 0.35, 0.6, 0.7], [0.6, 0.8, 0.9, 0.95]])
#: Preferences of the policy in each place, for answering, searching and giving up: softmax gives its probabilities.
PREFERENCES = np.array([[0.0, 0.6, -0.4], [0.2, 0.3, -0.6], [0.5, 0.0, -0.5], [1.0, -0.5, -0.5]])


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """One batch of episodes."""

    credit_batch: CreditBatch
    #: Place and action of each step, ``(N,)`` each.
    place: NDArray[np.int64]
    action: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class StoppingMDP:
    """The task with its policy. All arrays have one row for each of the H places."""

    preferences: Floats
    success: Floats

    @classmethod
    def standard(cls) -> StoppingMDP:
        """The one that the documentation reports on."""
        return cls(PREFERENCES, SUCCESS)

    @property
    def policy(self) -> Floats:
        """Probability of each action in each place, ``(H, 3)``."""
        weights = np.exp(self.preferences - self.preferences.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))

    @property
    def n_tasks(self) -> int:
        """Tasks; each batch plays a group of every one."""
        return len(self.success)

    def values(self) -> Floats:
        """Expected return from each place of each task, ``(tasks, H)``. After the last place a search ends empty."""
        return self._worth()[0]

    def action_values(self) -> Floats:
        """Expected return after each action, ``(tasks, H, 3)``."""
        return self._worth()[1]

    def _worth(self) -> tuple[Floats, Floats]:
        policy, (n_tasks, n_places) = self.policy, self.success.shape
        values, after = np.zeros((n_tasks, n_places + 1)), np.zeros((n_tasks, n_places, 3))
        for place in range(n_places - 1, -1, -1):
            after[:, place, ANSWER] = self.success[:, place]
            after[:, place, SEARCH] = values[:, place + 1] - SEARCH_COST
            values[:, place] = after[:, place] @ policy[place]
        return values[:, :-1], after

    def gradient(self) -> Floats:
        """Gradient of the mean expected return of the tasks by ``preferences``, ``(H, 3)``, exactly.

        ``dJ/dtheta[s, a] = d(s) pi(a|s) (Q(s, a) - V(s))`` with d(s) the expected visits (the policy gradient
        theorem, Sutton et al. 2000); the chance to come to a place does not depend on the task here.
        """
        policy = self.policy
        values, after = self._worth()
        visits = np.cumprod(np.concatenate([[1.0], policy[:-1, SEARCH]]))
        edge = after - values[:, :, None]
        return np.asarray((visits[:, None] * policy * edge).mean(axis=0))

    def score(self, place: NDArray[np.int64], action: NDArray[np.int64]) -> Floats:
        """Gradient of the log-prob of each step's action by the preferences of its place, ``(N, 3)``."""
        return np.asarray(np.eye(3)[action] - self.policy[place])

    def play(self, group_size: int, rng: np.random.Generator) -> Played:
        """A group of episodes for each task, as an estimator sees them; values are the exact ones."""
        n_places, n = self.success.shape[1], self.n_tasks * group_size
        task = np.repeat(np.arange(self.n_tasks), group_size)
        cumulative = np.cumsum(self.policy, axis=1)
        drawn = (rng.random((n, n_places))[:, :, None] > cumulative[None, :, :-1]).sum(axis=2)
        searched = np.cumprod(drawn == SEARCH, axis=1)
        alive = np.concatenate([np.ones((n, 1), dtype=np.bool_), searched[:, :-1].astype(np.bool_)], axis=1)
        trajectory, place = np.nonzero(alive)
        action = drawn[trajectory, place]
        right = rng.random(len(action)) < self.success[task[trajectory], place]
        reward = np.where(action == ANSWER, right.astype(np.float64), np.where(action == SEARCH, -SEARCH_COST, 0.0))
        n_tokens = TOKENS[action]
        ended = np.append(np.diff(trajectory) != 0, True)
        values, after = self._worth()
        here = values[task[trajectory], place]
        # Once its first token is out the action is known, and the state is worth what the action is worth.
        token_values = np.repeat(after[task[trajectory], place, action], n_tokens)
        token_values[np.cumsum(n_tokens) - n_tokens] = here
        batch = CreditBatch(
            group=task.astype(np.int64),
            group_id=tuple(f"task {t}" for t in task),
            trajectory=trajectory.astype(np.int64),
            reward=reward,
            n_tokens=n_tokens.astype(np.int64),
            terminated=ended,
            truncated=np.zeros(len(action), dtype=np.bool_),
            anchor=tuple(f"place {p}" for p in place),
            step_values=here,
            next_values=np.full(len(action), np.nan),
            token_values=token_values,
        )
        return Played(batch, place.astype(np.int64), action.astype(np.int64))

    def without_values(self, batch: CreditBatch) -> dict[str, Any]:
        """Fields that hide the exact values from an estimator: a critic that knows nothing."""
        return {"step_values": np.zeros(batch.n_steps), "token_values": np.zeros(batch.total_tokens)}
