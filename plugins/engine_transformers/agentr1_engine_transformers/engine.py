"""The embedded engine: samples from a transformers model inside this process.

The collector and the training backends call it through the core's ``InferenceEngine`` contract. This class checks
what comes in and hands it to a worker thread, which owns the model; it runs no forward itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from agentr1_core.engine import EngineCapabilities, Generation, Health, InferenceEngine, SamplingParams, WeightSource
from agentr1_core.errors import ConfigError, EngineError
from agentr1_core.mdp import TokenArray, token_array
from agentr1_engine_transformers import weights as weight_loading
from agentr1_engine_transformers.noise import NoiseStream
from agentr1_engine_transformers.request import Request
from agentr1_engine_transformers.runner import ModelRunner
from agentr1_engine_transformers.scheduler import Scheduler
from agentr1_engine_transformers.settings import EngineSettings
from agentr1_engine_transformers.worker import Worker

#: Below, threads that share a forward on the CPU wait for each other longer than they compute.
_FEW_PARAMETERS = 2_000_000


class TransformersEngine(InferenceEngine):
    """Any ``AutoModelForCausalLM``, on CPU or GPU, with continuous batching and reuse of cached prefixes.

    Args:
        settings: How to load and run the model.
        model: A live model to share instead of loading one: nothing is copied, and after each optimiser step
            ``update_weights(WeightSource("live"), version)`` says that it changed. Do not train while it generates.
        eos_token_ids: Further ids that end an action, beside those of the model and its tokenizer.
    """

    name: ClassVar[str] = "transformers"
    Settings: ClassVar[type[EngineSettings]] = EngineSettings

    def __init__(
        self,
        settings: EngineSettings | None = None,
        *,
        model: nn.Module | None = None,
        eos_token_ids: Iterable[int] = (),
    ) -> None:
        self._settings = settings or EngineSettings()
        if model is None and self._settings.model is None:
            raise ConfigError(
                "The transformers engine needs a model: `model` is not set and no live model was given.",
                "Set `model` to a folder or hub id, or use `TransformersEngine.sharing(model)`.",
            )
        self._model = model
        self._shared = model is not None
        self._stop_ids = frozenset(eos_token_ids)
        self._given_stop_ids = self._stop_ids
        self._vocab_size: int | None = None
        self._max_context = self._settings.max_context
        self._reuses_prefixes = self._settings.prefix_cache
        self._worker: Worker | None = None
        if model is not None:
            self._learn(model)

    @classmethod
    def sharing(
        cls, model: nn.Module, *, settings: EngineSettings | None = None, eos_token_ids: Iterable[int] = ()
    ) -> TransformersEngine:
        """An engine on a trainer's live model, already unwrapped: no copy and no weight transfer."""
        return cls(settings, model=model, eos_token_ids=eos_token_ids)

    @property
    def capabilities(self) -> EngineCapabilities:
        """What it can do; once started, it also knows whether the model lends itself to a prefix cache."""
        return EngineCapabilities(
            logprobs=True,
            prefix_cache=self._reuses_prefixes,
            weight_sync=frozenset({"live"} if self._shared else {"state_dict", "file"}),
            abort=True,
            seed=True,
            max_context=self._max_context,
        )

    async def start(self) -> None:
        """Load the model and try it out.

        Raises:
            EngineError: The model cannot be loaded or cannot run.
        """
        if self._worker is not None:
            return
        threads = self._settings.threads or torch.get_num_threads()
        worker = Worker(self._build, shared=self._shared, threads=threads)
        worker.start()
        self._worker = worker
        try:
            await worker.call(lambda scheduler: None)
        except EngineError:
            self._worker = None
            raise

    async def generate(
        self, prompt_ids: TokenArray, sampling: SamplingParams, *, session: str | None = None
    ) -> Generation:
        """Sample one action; see the contract. A cancelled call stops sampling."""
        worker = self._running()
        prompt = token_array(prompt_ids)
        self._check(prompt)
        room = sampling.max_tokens if self._max_context is None else self._max_context - len(prompt)
        loop = asyncio.get_running_loop()
        request = Request(
            prompt=prompt,
            sampling=sampling,
            session=session,
            stop_ids=self._stop_ids.union(sampling.stop_token_ids),
            limit=min(sampling.max_tokens, room),
            loop=loop,
            future=loop.create_future(),
            noise=NoiseStream(sampling.seed) if sampling.temperature > 0 else None,
        )
        worker.post(lambda scheduler: scheduler.submit(request), loop)
        try:
            return await request.future
        except asyncio.CancelledError:
            # Nobody waits for the tokens any more, so nobody should compute them.
            with contextlib.suppress(EngineError):  # a closed engine has stopped it already
                worker.post(lambda scheduler: scheduler.stop(lambda other: other is request), loop)
            raise

    async def update_weights(self, weights: WeightSource, version: int) -> None:
        """Take new weights between two steps; see the contract.

        Raises:
            EngineError: The weights do not fit, or come in a way this engine does not offer.
        """
        if weights.kind not in self.capabilities.weight_sync:
            offers = ", ".join(sorted(self.capabilities.weight_sync))
            raise EngineError(
                f"This transformers engine cannot take weights by {weights.kind!r} (it takes: {offers}).",
                "A shared model takes `live`; an engine with a model of its own takes `state_dict` or `file`.",
            )

        def run(scheduler: Scheduler) -> None:
            if weights.kind != "live":
                weight_loading.update(scheduler.runner.model, weights)
            scheduler.changed_weights(version)

        await self._running().call(run)

    async def abort(self, session: str) -> None:
        """Stop every call of this session; each returns what it has."""
        await self._running().call(lambda scheduler: scheduler.stop(lambda request: request.session == session))

    async def health(self) -> Health:
        """Whether it can serve, what runs, and how the model is driven."""
        if self._worker is None:
            return Health(ready=False, detail="not started")

        def look(scheduler: Scheduler) -> Health:
            how = "recomputing every context" if scheduler.runner.layout is None else "key-value cache"
            return Health(True, scheduler.version, scheduler.n_running, f"{scheduler.runner.device}, {how}")

        try:
            health: Health = await self._worker.call(look)
        except EngineError as error:
            return Health(ready=False, detail=error.problem)
        return health

    async def close(self) -> None:
        """End all calls, each with what it has, and release the model unless it is shared."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.close()

    def _build(self) -> Scheduler:
        """Make the scheduler; runs in the worker thread."""
        model = self._model
        if model is None:
            model, eos = weight_loading.load_model(self._settings)
            self._stop_ids = self._given_stop_ids | eos
            self._learn(model)
        runner = ModelRunner(model)
        if self._settings.threads is None and runner.device.type == "cpu" and runner.n_parameters < _FEW_PARAMETERS:
            torch.set_num_threads(1)  # holds for the worker thread, which this is
        runner.wake()
        try:
            with torch.no_grad():
                runner.probe()
        except (RuntimeError, ValueError, TypeError, AttributeError, IndexError, KeyError) as error:
            raise EngineError(
                f"A trial forward of {type(model).__name__} failed: {type(error).__name__}: {error}",
                "Check that it is a causal language model of transformers and that it fits in memory.",
            ) from error
        finally:
            runner.rest()
        self._reuses_prefixes = self._settings.prefix_cache and runner.layout is not None
        return Scheduler(runner, self._settings)

    def _learn(self, model: nn.Module) -> None:
        """Note the model's stop ids, vocabulary and context."""
        config: Any = model.config
        config = config.get_text_config(decoder=True)
        self._stop_ids |= weight_loading.model_eos(model)
        self._vocab_size = config.vocab_size
        if self._max_context is None:
            self._max_context = getattr(config, "max_position_embeddings", None)

    def _running(self) -> Worker:
        if self._worker is None:
            raise EngineError("The transformers engine is not running.", "Call `start` first, and not after `close`.")
        return self._worker

    def _check(self, prompt: TokenArray) -> None:
        if len(prompt) == 0:
            raise EngineError("The prompt is empty.", "Give at least one token.")
        if self._max_context is not None and len(prompt) >= self._max_context:
            raise EngineError(
                f"The prompt has {len(prompt)} tokens, which leaves no room in a context of {self._max_context}.",
                "Shorten the context (a context policy can), or raise `engine.max_context` if the model allows it.",
            )
        low, high = int(np.min(prompt)), int(np.max(prompt))
        if low < 0 or (self._vocab_size is not None and high >= self._vocab_size):
            raise EngineError(
                f"The prompt has token ids from {low} to {high}; the model's are 0 to {self._vocab_size} (excluded).",
                "Render the prompt with the tokenizer of this model.",
            )
