"""The contract between a run and whatever owns the optimiser loop.

TRL's Trainer and OpenRLHF's Ray trainer keep their own loops; a backend plugin joins one of them to the collector:
collect groups, turn them into rows, update, give the engine the new weights. ``agentr1 train`` builds the job.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from agentr1_core.certificate import Certificate
from agentr1_core.engine import SamplingParams
from agentr1_core.episode import RolloutLimits
from agentr1_core.errors import PluginError
from agentr1_core.flow import AgentFlowBase
from agentr1_core.reward import RewardSum
from agentr1_core.task import Task
from agentr1_core.tool import ToolBox

#: What ``certify`` can damage on purpose: position ids in packing order, log-probs taken at the left neighbour at a
#: branch, one sampled token as if it had been decoded and encoded again, an earlier turn that a later prompt repeats
#: with another token, and an engine that misses an update.
FAULTS = ("positions", "shift", "retokenise", "context", "stale")


@dataclass(frozen=True, slots=True)
class BackendCapabilities:
    """What a backend can do. A run that needs more is refused at start-up."""

    #: Row layouts it trains: ``none`` (one row a step), ``linear`` (continued steps merged), ``tree``.
    merges: frozenset[str] = frozenset({"none"})
    #: Whether it has a critic, for estimators that need values.
    values: bool = False
    #: Engine plugins it can drive, by name; empty means any.
    engines: frozenset[str] = frozenset()
    #: Whether it can warm-start a model on demonstrations.
    warm_start: bool = False
    resume: bool = False
    distributed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """Supervised fine-tuning before RL."""

    #: Rows of ``prompt`` and ``completion`` messages.
    demonstrations: Sequence[Mapping[str, Any]]
    #: The backend's own arguments for it (for TRL those of ``SFTConfig``).
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """Everything a backend needs for one run."""

    #: Hugging Face id or folder of the model.
    model: str
    run_dir: Path
    train_tasks: Sequence[Task]
    eval_tasks: Sequence[Task]
    #: Makes the flow of the run; each process calls it once.
    flow: Callable[[], AgentFlowBase]
    reward: RewardSum | None
    tools: ToolBox | None
    #: Class of the credit estimator, built with its settings.
    estimator: Any
    #: Class and settings of the engine plugin.
    engine: tuple[type[Any], Mapping[str, Any]]
    limits: RolloutLimits
    sampling: SamplingParams
    #: How the model is sampled in evaluation.
    eval_sampling: SamplingParams
    group_size: int
    #: Prompts for each optimiser update.
    prompts_per_update: int
    updates: int
    concurrency: int
    min_group_size: int
    merge: str
    #: Name of the renderer and its template arguments.
    renderer: tuple[str, Mapping[str, Any]]
    #: A ``ToolFormat`` for models whose chat template decides how tools are called; ``None`` for Hermes.
    tool_format: Any = None
    #: The backend's own arguments (for TRL those of ``GRPOConfig``).
    settings: Mapping[str, Any]
    warm_start: WarmStart | None = None
    #: Give advantages to random trajectories: the negative control, which must not learn.
    shuffle_advantages: bool = False
    #: Evaluate after every so many updates; 0 only before and after.
    eval_every: int = 0
    save_every: int = 0
    resume: bool = False
    seed: int = 0
    #: pluggy's hook relay, told of steps, trajectories, groups and updates.
    hooks: Any = None


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """What a run achieved. Success rates are shares of held-out tasks in [0, 1]; ``None`` without such tasks."""

    success_before: float | None
    success_after: float | None
    updates: int
    #: ``sampled``, ``trained``, ``masked``, ``dropped`` tokens; the last three add up to the first.
    ledger: Mapping[str, int]
    #: Folder of the trained model, in the Hugging Face layout.
    checkpoint: Path


class TrainingBackend(ABC):
    """Owns the optimiser loop of its ecosystem."""

    name: ClassVar[str] = "backend"

    @property
    @abstractmethod
    def capabilities(self) -> BackendCapabilities:
        """What this backend can do."""

    @abstractmethod
    def train(self, job: TrainingJob) -> TrainingResult:
        """Run a job to its end.

        Reports every update through ``job.hooks.agentr1_update(metrics=..., step=...)`` with at least ``loss``,
        ``reward``, ``kl``, ``entropy``, ``clip_ratio``, ``grad_norm``, ``logprob_gap`` and the ledger.
        """

    def certify(self, job: TrainingJob, *, n_groups: int = 2, fault: str | None = None) -> Certificate:
        """Measure on the installed stack what is promised about tokens, log-probs and gradients; trains nothing.

        With several processes all of them call it, and each gets the same certificate.

        Args:
            job: As for ``train``.
            n_groups: Groups of episodes to collect.
            fault: One of the names in ``agentr1_core.backend.FAULTS``: that thing is damaged on purpose, and the
                certificate must then fail.

        Raises:
            PluginError: The backend measures nothing.
        """
        raise self._lacks("`agentr1 certify`", "Certify the run with backend 'trl'.")

    def check(self, job: TrainingJob) -> None:
        """Refuse a job that needs what this backend lacks.

        Raises:
            PluginError: Naming the backend, the capability and the mend.
        """
        have = self.capabilities
        if job.merge not in have.merges:
            raise self._lacks(
                f"merge '{job.merge}'", f"Set `algorithm.merge` to one of: {', '.join(sorted(have.merges))}."
            )
        if getattr(job.estimator, "needs_values", False) and not have.values:
            raise self._lacks("a critic", "Choose an estimator without values, such as `grpo`.")
        engine = getattr(job.engine[0], "name", job.engine[0].__name__)
        if have.engines and engine not in have.engines:
            raise self._lacks(f"engine '{engine}'", f"Set `engine.name` to one of: {', '.join(sorted(have.engines))}.")
        if job.warm_start is not None and not have.warm_start:
            raise self._lacks("warm starts", "Remove `warm_start` from the run file.")
        if job.resume and not have.resume:
            raise self._lacks("resuming", "Start a new run folder.")

    def _lacks(self, what: str, mend: str) -> PluginError:
        return PluginError(f"Backend '{self.name}' does not support {what}.", mend)
