"""Bias and variance of an estimator's policy gradient, by Monte Carlo against the exact gradient.

``agentr1 lab bias`` calls ``measure_bias`` for any estimator on offer. Batches are played over and over; each gives one
gradient, as a backend would compute it from the estimator's advantages.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from agentr1_core.credit import CreditBatch, Estimator
from agentr1_core.errors import ConfigError
from agentr1_core.lab.mdp import Played, StoppingMDP

#: How the steps' gradients are averaged; see ``agentr1_core.rows.token_weights``.
Average = Literal["traj-mean-token-sum", "traj-mean-token-mean", "token-mean", "step-mean"]
#: Standard normal deviate that chance exceeds once in 10,000 times.
RARE = 3.719


@dataclass(frozen=True, slots=True, eq=False)
class BiasReport:
    """What was measured. Gradients are ``(H, 3)``, by place and action."""

    estimator: str
    average: str
    n_batches: int
    group_size: int
    #: The exact gradient.
    true: NDArray[np.float64]
    #: Mean of the estimated ones, and its standard error.
    mean: NDArray[np.float64]
    error: NDArray[np.float64]
    #: Total variance of one batch's gradient.
    variance: float
    #: Squared distance of the mean from the truth, in standard errors, over the parameters that are free.
    chi_square: float
    #: The same after the best rescaling: whether the direction is right.
    chi_square_scaled: float

    @property
    def bias(self) -> float:
        """``|mean - true| / |true|``."""
        return float(np.linalg.norm(self.mean - self.true) / np.linalg.norm(self.true))

    @property
    def scale(self) -> float:
        """The length of the mean along the truth, in lengths of the truth: 1 if unbiased."""
        return float(np.sum(self.mean * self.true) / np.sum(self.true**2))

    @property
    def cosine(self) -> float:
        """Cosine between the mean and the truth: 1 if the direction is right."""
        length = float(np.linalg.norm(self.mean))
        return float(np.sum(self.mean * self.true) / (length * np.linalg.norm(self.true))) if length else 0.0

    @property
    def noise(self) -> float:
        """Spread of one batch's gradient over its own useful length: ``sqrt(variance) / (scale |true|)``."""
        length = abs(self.scale) * float(np.linalg.norm(self.true))
        return float(np.sqrt(self.variance) / length) if length else float("inf")

    @property
    def chance(self) -> float:
        """The chi-square that an unbiased estimator exceeds once in 10,000 measurements (Wilson and Hilferty 1931).

        Each place has one parameter less than actions that is free.
        """
        free = self.true.shape[0] * (self.true.shape[1] - 1)
        return float(free * (1 - 2 / (9 * free) + RARE * np.sqrt(2 / (9 * free))) ** 3)

    @property
    def verdict(self) -> Literal["unbiased", "unbiased up to scale", "biased"]:
        """What the measurement allows to say: a bias smaller than its noise is not seen."""
        if self.chi_square < self.chance:
            return "unbiased"
        return "unbiased up to scale" if self.chi_square_scaled < self.chance else "biased"


def measure_bias(
    estimator: Estimator,
    *,
    n_batches: int = 20_000,
    group_size: int = 8,
    average: Average = "traj-mean-token-sum",
    critic: Literal["exact", "none"] = "exact",
    seed: int = 0,
    mdp: StoppingMDP | None = None,
) -> BiasReport:
    """Play ``n_batches`` batches and compare the mean gradient with the exact one.

    Args:
        estimator: Any, also a third party's.
        n_batches: How often an update's gradient is drawn.
        group_size: Episodes of each task in a batch.
        average: How token losses are averaged. ``traj-mean-token-sum`` is the plain policy gradient.
        critic: Values that estimators with a critic see: the exact ones, or zero everywhere.
        seed: Of all that is drawn.
        mdp: The task; ``StoppingMDP.standard()`` by default.

    Raises:
        ConfigError: The estimator needs a teacher, or a number is too small.
    """
    if estimator.needs_teacher:
        raise ConfigError(
            f"Estimator '{estimator.name}' follows a teacher, so the gradient of the reward is no measure of it.",
            "Measure its base, or another estimator.",
        )
    if n_batches < 2 or group_size < 1:
        raise ConfigError(f"{n_batches} batches of groups of {group_size}.", "Take at least 2 batches and groups of 1.")
    mdp = mdp or StoppingMDP.standard()
    rng = np.random.default_rng(seed)
    true = mdp.gradient()
    found = np.empty((n_batches, *true.shape))
    for i in range(n_batches):
        played = mdp.play(group_size, rng)
        batch = played.credit_batch
        if critic == "none":
            batch = replace(batch, **mdp.without_values(batch))
        advantages = estimator.estimate(batch).advantages
        found[i] = _gradient(mdp, played, advantages, average)
    mean, n = found.mean(axis=0), n_batches
    flat = found.reshape(n, -1) - mean.reshape(-1)
    covariance = flat.T @ flat / (n - 1)
    # The gradient of a softmax sums to zero in each place, so the covariance has no full rank.
    inverse = np.linalg.pinv(covariance / n, rcond=1e-9, hermitian=True)
    off = (mean - true).reshape(-1)
    line = true.reshape(-1)
    spread = float(line @ inverse @ line)
    best = float(line @ inverse @ mean.reshape(-1)) / spread if spread else 0.0
    scaled = mean.reshape(-1) - best * line
    return BiasReport(
        estimator=estimator.name,
        average=average,
        n_batches=n,
        group_size=group_size,
        true=true,
        mean=mean,
        error=np.sqrt(np.diag(covariance) / n).reshape(true.shape),
        variance=float(np.trace(covariance)),
        chi_square=float(off @ inverse @ off),
        chi_square_scaled=float(scaled @ inverse @ scaled) if best > 0 else float("inf"),
    )


def _gradient(
    mdp: StoppingMDP, played: Played, advantages: NDArray[np.float64], average: Average
) -> NDArray[np.float64]:
    """``sum_j w_j A_j grad log pi``; only the first token of an action is a choice."""
    batch = played.credit_batch
    first = np.cumsum(batch.n_tokens) - batch.n_tokens
    steps = (advantages[first] * _weights(batch, average))[:, None] * mdp.score(played.place, played.action)
    found = np.zeros_like(mdp.preferences)
    np.add.at(found, played.place, steps)
    return found


def _weights(batch: CreditBatch, average: Average) -> NDArray[np.float64]:
    """The weight of each step's tokens, ``(N,)``."""
    match average:
        case "traj-mean-token-sum":
            return np.full(batch.n_steps, 1.0 / batch.n_trajectories)
        case "token-mean":
            return np.full(batch.n_steps, 1.0 / batch.total_tokens)
        case "step-mean":
            return np.asarray(1.0 / (batch.n_steps * batch.n_tokens))
        case "traj-mean-token-mean":
            tokens = np.bincount(batch.trajectory, batch.n_tokens, batch.n_trajectories)
            return np.asarray(1.0 / (batch.n_trajectories * tokens[batch.trajectory]))
