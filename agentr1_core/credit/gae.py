"""Generalised advantage estimation with a critic, over the steps of a trajectory or over all its sampled tokens.

The backend fills the values of the ``CreditBatch`` from its critic, calls one of these estimators and trains the
critic on ``Credit.returns``. Only the end of an episode that a limit cut is bootstrapped; a real end is worth zero.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, Field

from agentr1_core.credit.baseline import Compared, compared_trajectories
from agentr1_core.credit.batch import Bools, CreditBatch, Floats
from agentr1_core.credit.estimator import Credit, Estimator, EstimatorSettings
from agentr1_core.credit.whiten import whiten
from agentr1_core.errors import ConfigError


class GAESettings(EstimatorSettings):
    """What both estimators can be told."""

    #: Discount; see the estimator for its unit of time.
    gamma: float = Field(default=1.0, ge=0, le=1)
    #: 1 is the discounted return minus the value, 0 the one-step difference.
    lam: float = Field(default=0.95, ge=0, le=1)
    #: Shift and scale the advantages to mean 0 and variance 1 over the batch.
    whiten: bool = True
    #: A trajectory that a limit cut short: bootstrap it from the value of what would have come next, take its return
    #: as it stands, or leave it out of training.
    truncated: Literal["bootstrap", "return", "mask"] = "bootstrap"


class StepGAESettings(GAESettings):
    """Settings of ``step_gae``."""


class TokenGAESettings(GAESettings):
    """Settings of ``token_gae``."""

    #: Discount from the last token of a step to the first of the next; like ``gamma`` where ``None``. With
    #: ``gamma=1`` it is the only one, and time is counted in steps.
    step_gamma: float | None = Field(default=None, ge=0, le=1)


class StepGAE(Estimator):
    """GAE of the step-level MDP (Schulman et al., arXiv 1506.02438, equation 16; one agent turn is one time step).

    ``d_t = r_t + gamma V_{t+1} - V_t``, ``A_t = d_t + gamma lam A_{t+1}``, return ``A_t + V_t``. ``V_t`` is taken at
    the last prompt token, before the action. Whitening is over steps that have an action, so a long action weighs no
    more than a short one.
    """

    name: ClassVar[str] = "step_gae"
    needs_values = True
    compares_group = False
    Settings: ClassVar[type[BaseModel]] = StepGAESettings
    settings: StepGAESettings

    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages and returns ``(T,)``; zero for trajectories without a reward.

        Raises:
            ConfigError: The batch carries no ``step_values``.
        """
        if batch.step_values is None:
            raise _no_values(self.name, "step_values")
        told = self.settings
        compared = compared_trajectories(batch, "mask" if told.truncated == "mask" else "return")
        included = compared.included[batch.trajectory]
        after, unknown = _value_after_end(batch, told.truncated == "bootstrap")
        gamma = np.full(batch.n_steps, told.gamma)
        raw = _recursion(batch.rewards, batch.step_values, after, _ends(batch), gamma, told.lam)
        advantages, skipped = _finish(raw, included & (batch.n_tokens > 0), told.whiten)
        return Credit(
            advantages=batch.steps_to_tokens(advantages),
            returns=batch.steps_to_tokens(np.where(included, raw + batch.step_values, 0.0)),
            masked=compared.masked_tokens,
            counters=_counters(compared, unknown, skipped),
        )


class TokenGAE(Estimator):
    """GAE over the sampled tokens of a trajectory, one after the other across its steps (arXiv 1506.02438).

    Each token is one unit of time; tokens the model did not sample take none. The reward of a step falls on its last
    token, that of a step without tokens on the last one before it.
    """

    name: ClassVar[str] = "token_gae"
    needs_values = True
    value_unit: Literal["step", "token"] = "token"
    compares_group = False
    Settings: ClassVar[type[BaseModel]] = TokenGAESettings
    settings: TokenGAESettings

    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages and returns ``(T,)``; zero for trajectories without a reward.

        Raises:
            ConfigError: The batch carries no ``token_values``.
        """
        if batch.token_values is None:
            raise _no_values(self.name, "token_values")
        told = self.settings
        compared = compared_trajectories(batch, "mask" if told.truncated == "mask" else "return")
        included = batch.trajectories_to_tokens(compared.included)
        after_step, unknown = _value_after_end(batch, told.truncated == "bootstrap")
        rewards, after = np.zeros((2, batch.total_tokens))
        gamma = np.full(batch.total_tokens, told.gamma)
        owner = batch.trajectories_to_tokens(np.arange(batch.n_trajectories))
        end = np.append(np.diff(owner) != 0, True)[: batch.total_tokens]
        token_end = np.cumsum(batch.n_tokens)
        first_token = np.searchsorted(owner, np.arange(batch.n_trajectories), side="left")
        for step in range(batch.n_steps):
            carrier = int(token_end[step]) - 1
            if carrier < first_token[batch.trajectory[step]]:
                continue  # nothing was sampled up to here that could have earned it
            rewards[carrier] += batch.rewards[step]
            if told.step_gamma is not None:
                gamma[carrier] = told.step_gamma
            after[carrier] = after_step[step]
            end[carrier] |= batch.terminated[step]
        raw = _recursion(rewards, batch.token_values, after, end, gamma, told.lam)
        advantages, skipped = _finish(raw, included, told.whiten)
        return Credit(
            advantages=advantages,
            returns=np.where(included, raw + batch.token_values, 0.0),
            masked=compared.masked_tokens,
            counters=_counters(compared, unknown, skipped),
        )


def _no_values(name: str, field: str) -> ConfigError:
    return ConfigError(
        f"Credit estimator '{name}' needs values, but the batch has no {field}.",
        "Use a backend with a critic, or an estimator without values, such as 'grpo'.",
    )


def _ends(batch: CreditBatch) -> Bools:
    """Whether nothing that counts follows each step, ``(N,)``."""
    return batch.last | batch.terminated


def _value_after_end(batch: CreditBatch, bootstrap: bool) -> tuple[Floats, int]:
    """The value behind each last step, ``(N,)``, zero where the task ended; and how many cut ones have no value."""
    cut = batch.last & batch.truncated & ~batch.terminated
    if not bootstrap:
        return np.zeros(batch.n_steps), 0
    known = batch.next_values if batch.next_values is not None else np.full(batch.n_steps, np.nan)
    usable = cut & np.isfinite(known)
    return np.where(usable, known, 0.0), int(np.sum(cut & ~usable))


def _recursion(
    rewards: Floats, values: Floats, after_end: Floats, end: Bools, gamma: Floats, lam: float
) -> NDArray[np.float64]:
    """``A_t = r_t + gamma_t V_{t+1} - V_t + gamma_t lam A_{t+1}``, where an end takes ``after_end`` for ``V_{t+1}``."""
    found = np.zeros(len(rewards))
    ahead = 0.0
    for t in range(len(rewards) - 1, -1, -1):
        following, onward = (after_end[t], 0.0) if end[t] else (values[t + 1], ahead)
        ahead = rewards[t] + gamma[t] * following - values[t] + gamma[t] * lam * onward
        found[t] = ahead
    return found


def _finish(raw: Floats, included: Bools, wanted: bool) -> tuple[Floats, bool]:
    if not wanted:
        return np.where(included, raw, 0.0), False
    result = whiten(raw, included)
    return result.values, result.skipped


def _counters(compared: Compared, unknown: int, skipped: bool) -> dict[str, float]:
    return {
        **compared.counters,
        "credit/bootstrap_unknown": float(unknown),
        "credit/whitening_skipped": float(skipped),
    }
