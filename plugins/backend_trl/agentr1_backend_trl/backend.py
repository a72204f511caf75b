"""``TRLBackend``: a training job of ``agentr1 train``, run with TRL.

It loads the model, warm-starts it if asked, and lets ``StepGRPOTrainer`` train it between two evaluations. Everything
about one update is the trainer's; this module only wires the job.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from accelerate import PartialState
from datasets import Dataset, are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
from transformers import (
    AutoModelForCausalLM,
    PrinterCallback,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint
from transformers.utils import logging as hf_logging

from agentr1_backend_trl.critic import CriticSettings
from agentr1_backend_trl.global_credit import as_estimator
from agentr1_backend_trl.policy_loss import PolicyLoss
from agentr1_backend_trl.startup import check_extras
from agentr1_backend_trl.trainer import StepGRPOTrainer
from agentr1_backend_trl.trl_settings import grpo_config, sft_config, tree_settings
from agentr1_backend_trl.warm_start import warm_start
from agentr1_core.backend import BackendCapabilities, TrainingBackend, TrainingJob, TrainingResult
from agentr1_core.certificate import Certificate
from agentr1_core.errors import ConfigError
from agentr1_core.job.offers import build_engine
from agentr1_core.render import create_chat_renderer
from agentr1_core.task import Task

#: Models with fewer parameters than this run on one CPU thread unless `backend.threads` says otherwise.
SMALL_MODEL = 5_000_000


class TRLBackend(TrainingBackend):
    """Step-level GRPO and its relatives on TRL. Settings are the fields of ``trl.GRPOConfig``, and:

    ``loss`` (a loss of agentr1 in place of ``loss_type``, by name or with its settings), ``critic`` (settings of the
    critic, for estimators with values), ``teacher`` (a model to distil from, for ``distill``),
    ``rows_per_forward`` (rows of one forward and backward), ``tree_tokens`` and ``tree_path`` (with ``merge: tree``,
    the unique tokens of one forward, and how trees run: ``auto``, ``mask`` or ``kv``), ``importance_cap``,
    ``engine_weights`` (``state_dict`` or ``file``), ``lora`` (arguments of ``peft.LoraConfig``), ``dtype`` (of the
    weights; ``float32`` by default, as in TRL), ``threads`` (of the CPU where there is no GPU; one for models below
    five million parameters).
    """

    name: ClassVar[str] = "trl"

    @property
    def capabilities(self) -> BackendCapabilities:
        """What it can do."""
        return BackendCapabilities(
            merges=frozenset({"none", "linear", "tree"}), values=True, warm_start=True, resume=True, distributed=True
        )

    def check(self, job: TrainingJob) -> None:
        """Refuse a job that cannot be done, TRL's own settings included, before anything is loaded."""
        super().check(job)
        args = grpo_config(job, job.run_dir / "trainer", _state().num_processes)
        told = job.settings
        loss = None if told.get("loss") is None else PolicyLoss.of(told["loss"])
        CriticSettings.of(told.get("critic"))
        check_extras(args, as_estimator(job.estimator), loss, told.get("critic"), told.get("teacher"))
        if job.warm_start is not None:
            sft_config(job.warm_start.settings, job.run_dir / "warm_start", job.seed)

    def train(self, job: TrainingJob) -> TrainingResult:
        """Run a job to its end; see the contract.

        Raises:
            ConfigError: A setting is wrong, or the model cannot be loaded.
        """
        self.check(job)
        threads = torch.get_num_threads()
        try:
            with _quiet():
                return self._train(job)
        finally:
            torch.set_num_threads(threads)
            torch.set_flush_denormal(False)

    def certify(self, job: TrainingJob, *, n_groups: int = 2, fault: str | None = None) -> Certificate:
        """Measure tokens, log-probs and gradients of a few episodes with the job's own model, before any warm start.

        Raises:
            ConfigError: As for ``train``; or weights are sharded over several processes.
        """
        from agentr1_backend_trl.certify import certify

        job = replace(job, warm_start=None, resume=False, hooks=None)
        self.check(job)
        threads = torch.get_num_threads()
        try:
            with _quiet():
                trainer, *_ = self._prepare(job)
                return certify(trainer, len(job.train_tasks), n_groups=n_groups, fault=fault)
        finally:
            torch.set_num_threads(threads)
            torch.set_flush_denormal(False)

    def _train(self, job: TrainingJob) -> TrainingResult:
        trainer, tokenizer, folder, resume_from = self._prepare(job)
        return _run(trainer, job, tokenizer, folder, resume_from)

    def _prepare(self, job: TrainingJob) -> tuple[StepGRPOTrainer, Any, Path, str | None]:
        """The trainer, the tokenizer, the trainer's folder and the checkpoint to go on from."""
        folder = job.run_dir / "trainer"
        state = _state()
        args = grpo_config(job, folder, state.num_processes)
        resume_from = _checkpoint_to_resume(folder) if job.resume else None
        tokenizer = _load_tokenizer(job.model)
        model = _load_model(job.model, str(job.settings.get("dtype", "float32")))
        if not torch.cuda.is_available():
            _tune_cpu(model, job.settings.get("threads"))
        _check_vocabulary(job.model, model, tokenizer)
        renderer = create_chat_renderer(
            tokenizer, name=job.renderer[0], tool_format=job.tool_format, template_kwargs=job.renderer[1]
        )
        if job.warm_start is not None and resume_from is None:
            tuned = job.run_dir / "warm_start"
            warm_start(model, tokenizer, renderer, job.warm_start, tuned / "trainer", job.seed)
            if state.is_main_process:
                model.save_pretrained(tuned)
                tokenizer.save_pretrained(tuned)
            state.wait_for_everyone()
            # Loaded anew, so that a reference model is loaded from here too, and not from before the warm start.
            model = _load_model(str(tuned), str(job.settings.get("dtype", "float32")))
        trainer = _JobTrainer(
            model,
            args=args,
            train_dataset=_positions(len(job.train_tasks), job.prompts_per_update),
            processing_class=tokenizer,
            callbacks=_tensorboard(job.run_dir / "tensorboard", state) if "report_to" not in job.settings else None,
            peft_config=_lora(job.settings.get("lora")),
            tasks=job.train_tasks,
            flow=job.flow(),
            tools=job.tools,
            estimator=job.estimator,
            merge=job.merge,
            tree=tree_settings(job),
            limits=job.limits,
            engine=_engine(job, model, tokenizer),
            engine_weights=job.settings.get("engine_weights"),
            reward=job.reward,
            renderer=renderer,
            sampling=job.sampling,
            eval_sampling=job.eval_sampling,
            concurrency=job.concurrency,
            min_group_size=job.min_group_size,
            rows_per_forward=job.settings.get("rows_per_forward"),
            importance_cap=job.settings.get("importance_cap"),
            loss=job.settings.get("loss"),
            critic=job.settings.get("critic"),
            teacher=job.settings.get("teacher"),
            shuffle_advantages=job.shuffle_advantages,
            hooks=job.hooks,
        )
        trainer.remove_callback(PrinterCallback)
        return trainer, tokenizer, folder, resume_from


class _JobTrainer(StepGRPOTrainer):
    """Trains on tasks as they are: the data set only holds their positions, so that no column passes through Arrow."""

    def __init__(self, *args: Any, tasks: Sequence[Task], **kwargs: Any) -> None:
        self._tasks = tasks
        super().__init__(*args, **kwargs)

    def task_of(self, row: Mapping[str, Any], where: str) -> Task:
        return self._tasks[row["task"]]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and deprecation notes of the libraries between the lines of the run's own display."""
    bars = hf_logging.is_progress_bar_enabled(), are_progress_bars_disabled()
    hf_logging.disable_progress_bar()
    disable_progress_bars()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            yield
    finally:
        if bars[0]:
            hf_logging.enable_progress_bar()
        if not bars[1]:
            enable_progress_bars()


def _tensorboard(folder: Path, state: PartialState) -> list[TrainerCallback]:
    """TensorBoard out of the box, on the first process."""
    if not state.is_main_process:
        return []
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations import TensorBoardCallback

    return [TensorBoardCallback(SummaryWriter(str(folder)))]


class _Evaluate(TrainerCallback):  # type: ignore[misc]  # transformers types it as Any here
    """Plays the held-out tasks after every so many updates."""

    def __init__(self, trainer: StepGRPOTrainer, tasks: Sequence[Task], every: int) -> None:
        self._trainer, self._tasks, self._every = trainer, tasks, every

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step % self._every == 0 and state.global_step < state.max_steps:
            self._trainer.note("eval/success", self._trainer.success_on(self._tasks))


def _run(
    trainer: StepGRPOTrainer, job: TrainingJob, tokenizer: Any, folder: Path, resume_from: str | None
) -> TrainingResult:
    noted = folder / "success_before.json"
    with trainer.session():
        if resume_from is not None and noted.is_file():
            before = json.loads(noted.read_text())
        else:
            before = trainer.success_on(job.eval_tasks) if job.eval_tasks else None
            if trainer.accelerator.is_main_process:
                folder.mkdir(parents=True, exist_ok=True)
                noted.write_text(json.dumps(before))
        if job.eval_tasks and job.eval_every:
            trainer.add_early_callback(_Evaluate(trainer, job.eval_tasks, job.eval_every))
        if job.updates:
            trainer.train(resume_from_checkpoint=resume_from)
        after = trainer.success_on(job.eval_tasks) if job.eval_tasks else None
    checkpoint = job.run_dir / "checkpoint"
    trainer.save_model(str(checkpoint))
    if trainer.accelerator.is_main_process:
        if _is_adapter(checkpoint):
            _merge_adapter(trainer, checkpoint)
        tokenizer.save_pretrained(checkpoint)
    trainer.accelerator.wait_for_everyone()
    ledger = trainer.ledger.as_dict()
    return TrainingResult(
        success_before=before,
        success_after=after,
        updates=int(trainer.state.global_step),
        ledger={name: ledger[name] for name in ("sampled", "trained", "masked", "dropped")},
        checkpoint=checkpoint,
    )


def _state() -> PartialState:
    """The processes of this run, as accelerate knows them."""
    return PartialState(cpu=not torch.cuda.is_available())


def _tune_cpu(model: Any, threads: int | None) -> None:
    """Saturated softmaxes give denormal gradients, which CPUs handle several times slower; and threads that wait for
    each other cost a small model more than they bring, above all on a machine that others use too."""
    torch.set_flush_denormal(True)
    if threads is None and model.num_parameters() < SMALL_MODEL:
        threads = 1
    if threads is not None:
        torch.set_num_threads(threads)


def _load_tokenizer(model: str) -> Any:
    from agentr1_core.job.rollouts import load_tokenizer

    return load_tokenizer(model)


def _load_model(name: str, dtype: str) -> Any:
    try:
        return AutoModelForCausalLM.from_pretrained(name, dtype=dtype)
    except (OSError, ValueError, RuntimeError, ImportError, KeyError, AttributeError) as error:
        raise ConfigError(
            f"`model`: '{name}' cannot be loaded: {error}",
            "Name a folder with config.json and safetensors, or a hub id that can be reached.",
        ) from error


def _check_vocabulary(name: str, model: Any, tokenizer: Any) -> None:
    largest = max(tokenizer.get_vocab().values(), default=0)
    size = model.get_input_embeddings().num_embeddings
    if largest >= size:
        raise ConfigError(
            f"`model`: the tokenizer of '{name}' has token ids up to {largest}, but the model only {size} embeddings.",
            "Use the tokenizer that the model was trained with.",
        )


def _positions(n_tasks: int, n_prompts: int) -> Dataset:
    """Positions of the tasks, repeated where there are fewer than an update takes: TRL leaves out short batches."""
    n = max(n_tasks, n_prompts)
    return Dataset.from_dict({"task": [position % n_tasks for position in range(n)]})


def _engine(job: TrainingJob, model: Any, tokenizer: Any) -> Any:
    """The job's engine: the embedded one shares the model, any other has its own."""
    kind, given = job.engine
    settings_type = getattr(kind, "Settings", None)
    if hasattr(kind, "sharing"):
        own = settings_type(**given) if settings_type is not None else None
        return kind.sharing(model, settings=own, eos_token_ids=[tokenizer.eos_token_id])
    return build_engine(kind, given, model=job.model, run_dir=job.run_dir)


def _lora(settings: Mapping[str, Any] | None) -> Any:
    if settings is None:
        return None
    from peft import LoraConfig

    try:
        return LoraConfig(task_type="CAUSAL_LM", **settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"`backend.lora`: {error}", "Use the arguments of peft.LoraConfig.") from error


def _is_adapter(folder: Path) -> bool:
    return (folder / "adapter_config.json").is_file()


def _merge_adapter(trainer: StepGRPOTrainer, folder: Path) -> None:
    """Put the whole model beside the adapter, so that the folder loads like any other."""
    model = trainer.accelerator.unwrap_model(trainer.model)
    model.merge_and_unload().save_pretrained(folder)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        path = folder / name
        if path.is_file():
            (folder / "adapter").mkdir(exist_ok=True)
            path.rename(folder / "adapter" / name)


def _checkpoint_to_resume(folder: Path) -> str:
    found = get_last_checkpoint(str(folder)) if folder.is_dir() else None
    if found is None:
        raise ConfigError(
            f"There is no checkpoint to resume from in {folder}.",
            "Set `run.save_every` in the run that shall be resumed, or start a new one.",
        )
    return str(found)
