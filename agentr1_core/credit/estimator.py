"""The contract of credit estimators: from the rewards of steps to an advantage for each sampled token.

Backends call ``estimate`` on the batch of *all* ranks, since baselines and whitening are global, and hand the
result to ``make_rows``. Estimators are pure: they keep no state between calls and never touch tokens.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from agentr1_core.credit.batch import CreditBatch
from agentr1_core.errors import ConfigError


@dataclass(frozen=True, slots=True, eq=False)
class Credit:
    """What an estimator says about each of the T sampled tokens, in the order of its ``CreditBatch``."""

    #: Advantage of each token, ``(T,)``.
    advantages: NDArray[np.float64]
    #: Value target of each token, ``(T,)``, from estimators with a critic.
    returns: NDArray[np.float64] | None = None
    #: The critic's value when the tokens were sampled, ``(T,)``; a backend with a critic fills it in.
    values: NDArray[np.float64] | None = None
    #: True for the tokens of truncated trajectories that must not be trained, ``(T,)``; ``None`` for none of them.
    masked: NDArray[np.bool_] | None = None
    #: What happened: ``credit/groups_of_one``, ``credit/zero_variance_groups``, ``credit/unscorable``, ...
    counters: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in ("returns", "values", "masked"):
            values = getattr(self, name)
            if values is not None and len(values) != len(self.advantages):
                raise ValueError(f"Credit.{name} has {len(values)} entries for {len(self.advantages)} tokens.")


class EstimatorSettings(BaseModel):
    """Base of all estimator settings: an unknown field is an error, a number is finite."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class CriticFreeSettings(EstimatorSettings):
    """What every estimator without a critic can be told."""

    #: A trajectory that a limit cut short: take its return as it stands, or leave it out of baseline and training.
    truncated: Literal["return", "mask"] = "return"


class Estimator(ABC):
    """One way to assign credit. Subclass it and set ``name`` and ``Settings``.

    Args:
        settings: A ``Settings`` instance or a mapping of its fields; defaults where ``None``.

    Raises:
        ConfigError: A field is unknown or has a wrong value.
    """

    name: ClassVar[str]
    #: Whether ``CreditBatch`` must carry values, so that the backend has to train a critic.
    needs_values: bool = False
    #: What the critic values: observations (``step_values``) or every state between tokens (``token_values``).
    value_unit: Literal["step", "token"] = "step"
    #: Whether ``CreditBatch`` must carry ``sampled_logprobs`` and ``teacher_logprobs``.
    needs_teacher: bool = False
    #: Whether trajectories are only compared within their group, so that a group of one says nothing.
    compares_group: bool = True
    Settings: ClassVar[type[BaseModel]] = EstimatorSettings

    settings: Any

    def __init__(self, settings: BaseModel | Mapping[str, Any] | None = None) -> None:
        fields = settings.model_dump() if isinstance(settings, BaseModel) else dict(settings or {})
        try:
            self.settings = self.Settings(**fields)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            known = ", ".join(self.Settings.model_fields) or "none"
            raise ConfigError(
                f"Credit estimator '{self.name}', setting '{place}': {first['msg']}.", f"Its settings are: {known}."
            ) from error

    @abstractmethod
    def estimate(self, batch: CreditBatch) -> Credit:
        """Advantages of all sampled tokens of the batch, finite for every input that ``CreditBatch`` accepts."""
