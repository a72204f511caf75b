"""What a trainer reports: with every optimiser step, with every batch of episodes, and in its checkpoints.

``StepGRPOTrainer`` inherits it. Figures go to TRL's own log, under TRL's names where it has them, and to agentr1's
``agentr1_update`` hook. Nothing here changes what is trained.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from accelerate.utils import gather_object
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from agentr1_backend_trl.figures import TokenFigures
from agentr1_backend_trl.reward_functions import completion_of
from agentr1_backend_trl.step_batch import ScoredBatch
from agentr1_core.rows import Ledger

#: Kept in each checkpoint, so that a resumed run accounts for the tokens of the whole run.
LEDGER_FILE = "token_ledger.json"
#: Figures of a step that TRL or transformers already log, under these names or others.
_LOGGED_BY_TRL = ("loss", "tokens", "step_seconds", "learning_rate")


class UpdateReporting:
    """The reporting half of a ``trl.GRPOTrainer`` subclass."""

    def begin_reporting(self: Any, hooks: Any) -> None:
        """Called before TRL's own constructor."""
        #: Token ledger of the whole run, all ranks together.
        self.ledger = Ledger()
        #: Figures of the last optimiser step.
        self.last_update = {}
        #: Sums over the tokens of the optimiser step in progress.
        self.tokens = TokenFigures()
        self._hooks = hooks
        self._batch_figures = {}
        self._step_figures = {}
        self._grad_norm = 0.0

    def report_from_now_on(self: Any) -> None:
        """Called after TRL's own constructor. Only the main process tells the hooks."""
        if not self.accelerator.is_main_process:
            self._hooks = None
        self.add_callback(_UpdateReport(self))

    def add_early_callback(self: Any, callback: TrainerCallback) -> None:
        """Add a callback that runs before this update's figures are reported, so that it can add to them."""
        self.add_callback(callback)
        callbacks = self.callback_handler.callbacks
        report = next(one for one in callbacks if isinstance(one, _UpdateReport))
        callbacks.remove(report)
        callbacks.append(report)

    def note(self: Any, name: str, value: float | None) -> None:
        """Add a figure to this update's; ``None`` adds nothing."""
        if value is not None:
            self._step_figures[name] = value
            self._metrics["train"][name].append(value)

    def reduce_tokens(self: Any) -> dict[str, float]:
        """Figures of the tokens since the last call, over all ranks; every rank calls it equally often."""
        names = ["entropy", "clip_ratio/low_mean", "clip_ratio/high_mean", "drift", "logprob_gap"]
        names += ["kl"] if self.beta != 0.0 else []
        names += ["sampling/importance_sampling_ratio/mean"] if self.corrects_engine else []
        names += ["ratio_capped"] if self.policy_loss is not None else []
        tokens, self.tokens = self.tokens, TokenFigures()
        figures = tokens.reduce(self.accelerator, names)
        figures["clip_ratio/region_mean"] = figures["clip_ratio/low_mean"] + figures["clip_ratio/high_mean"]
        return figures

    def close_step(self: Any) -> None:
        """All parts of an optimiser step are in: note its figures."""
        self._step_figures = self.reduce_tokens()
        if self.critic is not None:
            self._step_figures.update(self.critic.step())
        logged = self._metrics["train"]
        logged["step_time"].append(self._current_train_step_time)
        self._step_figures["learning_rate"] = float(self._get_learning_rate())
        self._step_figures["step_seconds"], self._current_train_step_time = self._current_train_step_time, 0.0
        for name, value in self._step_figures.items():
            if name not in _LOGGED_BY_TRL:
                logged[name].append(value)

    def log_episodes(self: Any, scored: ScoredBatch, training: bool) -> None:
        """Note the figures of a batch of episodes; every rank calls it equally often."""
        figures = dict(scored.figures)
        episodes = figures.get("episodes", 0.0)
        if training:
            self.ledger = self.ledger + scored.ledger
            read = (figures.get("tokens/prompt", 0.0) + figures.get("tokens/sampled", 0.0)) * episodes
            self.state.num_input_tokens_seen += int(read)
            figures["num_tokens"] = float(self.state.num_input_tokens_seen)
            self._batch_figures = figures
        logged = self._metrics["train" if training else "eval"]
        for name, value in figures.items():
            logged[name].append(value)
        self._flush_user_figures(logged)
        if self.log_completions:
            self._log_trajectories(scored)

    def _flush_user_figures(self: Any, logged: Mapping[str, list[float]]) -> None:
        """What reward functions logged through ``log_metric``: a mean over all ranks."""
        pending = gather_object([dict(self._pending_metrics)])
        for name in sorted({name for part in pending for name in part}):
            values = [value for part in pending for value in part.get(name, [])]
            logged[name].append(sum(values) / len(values))
        self._pending_metrics.clear()

    def _log_trajectories(self: Any, scored: ScoredBatch) -> None:
        own = []
        start = 0
        for trajectory in scored.collection.trajectories:
            n = trajectory.n_sampled
            advantages = scored.credit.own.advantages[start : start + n]
            start += n
            prompt = list(trajectory.steps[0].observation.messages)
            mean = float(advantages.mean()) if n else 0.0
            extra = dict(scored.extras.get((trajectory.group_id, trajectory.id), {}))
            own.append((prompt, completion_of(trajectory), dict(trajectory.rewards), mean, extra))
        found = [one for part in gather_object([own]) for one in part]
        names = sorted({name for _, _, rewards, _, _ in found for name in rewards})
        columns = sorted({name for *_, extra in found for name in extra})
        for prompt, completion, rewards, advantage, extra in found:
            self._logs["prompt"].append(prompt)
            self._logs["completion"].append(completion)
            self._logs["advantages"].append(advantage)
            for name in names:
                self._logs["rewards"][name].append(rewards.get(name))
            for name in columns:
                self._logs["extra"][name].append(extra.get(name))

    def _get_grad_norm(self: Any, model: Any, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self._grad_norm = float(norm) if norm is not None else 0.0
        return norm

    def _save_checkpoint(self: Any, model: Any, trial: Any) -> None:
        super()._save_checkpoint(model, trial)
        if self.args.should_save:
            folder = Path(self._get_output_dir(trial=trial)) / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
            (folder / LEDGER_FILE).write_text(json.dumps(asdict(self.ledger)))
            if self.critic is not None:
                self.critic.save(folder)

    def _load_optimizer_and_scheduler(self: Any, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is not None and (Path(checkpoint) / LEDGER_FILE).is_file():
            self.ledger = Ledger(**json.loads((Path(checkpoint) / LEDGER_FILE).read_text()))
        if checkpoint is not None and self.critic is not None:
            self.critic.load(Path(checkpoint))

    def report_update(self: Any) -> None:
        """Note the figures of the optimiser step that just ended, and tell the hooks."""
        figures = {**self._batch_figures, **self._step_figures}
        figures["grad_norm"] = self._grad_norm
        figures["clip_ratio"] = figures.get("clip_ratio/region_mean", 0.0)
        # Without a reference model the KL that is left to report is that from the behaviour policy.
        figures.setdefault("kl", figures.get("drift", 0.0))
        self.last_update = figures
        if self._hooks is not None:
            self._hooks.agentr1_update(metrics=figures, step=self.state.global_step)


class _UpdateReport(TrainerCallback):  # type: ignore[misc]  # transformers types it as Any here
    """Tells the trainer that an optimiser step ended."""

    def __init__(self, trainer: UpdateReporting) -> None:
        self._trainer = trainer

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        self._trainer.report_update()
