"""The contract between the loop and whatever samples tokens.

An engine takes prompt token ids and gives back sampled token ids with their log-probabilities. It never sees
text. vLLM, SGLang and the embedded transformers engine implement this class; the collector and the training
backends call it. A capability that an engine lacks is an error at start-up (``require``), never a silent no-op.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from agentr1_core.errors import PluginError
from agentr1_core.mdp import FinishReason, FloatArray, TokenArray, VersionSpan


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How to sample one action. ``top_k=0``, ``top_p=1`` and ``min_p=0`` leave the support whole.

    ``temperature=0`` means greedy decoding: the distribution is a point mass and each log-prob is 0.
    """

    max_tokens: int = 256
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    stop_token_ids: tuple[int, ...] = ()
    #: Same seed, same prompt and same weights give the same tokens, whatever else is in flight.
    seed: int | None = None

    def __post_init__(self) -> None:
        checks = (
            ("max_tokens", self.max_tokens >= 1, "at least 1"),
            ("temperature", self.temperature >= 0, "0 or more"),
            ("top_p", 0 < self.top_p <= 1, "in (0, 1]"),
            ("top_k", self.top_k >= 0, "0 (off) or more"),
            ("min_p", 0 <= self.min_p < 1, "in [0, 1)"),
        )
        for name, ok, wanted in checks:
            if not ok:
                raise ValueError(f"SamplingParams.{name} is {getattr(self, name)!r}; it must be {wanted}.")

    @property
    def truncates_support(self) -> bool:
        """Whether some tokens cannot be sampled at all, which biases a naive importance ratio."""
        return self.top_p < 1 or self.top_k > 0 or self.min_p > 0

    def recorded(self) -> dict[str, Any]:
        """The parameters that shape the distribution, as stored with each step."""
        kept = asdict(self)
        del kept["max_tokens"], kept["stop_token_ids"]
        return kept


@dataclass(frozen=True, slots=True)
class Generation:
    """The result of one ``generate`` call."""

    #: Sampled tokens, the stop token included, ``(n_tokens,)`` int32.
    token_ids: TokenArray
    #: Log-prob (nats) of each under the distribution that was sampled from, ``(n_tokens,)`` float32.
    logprobs: FloatArray
    finish_reason: FinishReason
    version_spans: tuple[VersionSpan, ...]
    #: Prompt tokens not computed anew because their keys and values were cached.
    cached_tokens: int = 0
    #: Seconds: ``queued``, ``prefill``, ``decode`` where the engine knows them.
    timings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """What an engine can do. Callers ask through ``Engine.require``."""

    logprobs: bool = True
    prefix_cache: bool = False
    #: Ways new weights can reach it: ``live`` (shares the model), ``state_dict``, ``file``, ``lora``.
    weight_sync: frozenset[str] = frozenset()
    abort: bool = False
    seed: bool = False
    #: Whether log-probs are right under top-k, top-p and min-p too.
    truncation: bool = True
    vision: bool = False
    #: Longest prompt plus action, in tokens; ``None`` when unknown.
    max_context: int | None = None
    #: Whether it gives the ids of what it sampled; without them nothing can be trained.
    token_ids: bool = True


@dataclass(frozen=True, slots=True)
class Health:
    """Whether an engine can serve now."""

    ready: bool
    weight_version: int = 0
    running: int = 0
    detail: str = ""


@dataclass(frozen=True, slots=True)
class WeightSource:
    """Where an engine finds new weights: the ``kind`` names the route, the other fields what it needs.

    ``file``, ``state_dict`` and ``live`` bring whole weights and end whatever adapter the engine had. ``lora`` brings
    an adapter on top of the last whole weights that the engine was given, or of those it started with.
    """

    kind: str
    #: For ``file``: a folder in the Hugging Face layout; for ``lora``: one in PEFT's.
    path: Path | None = None
    #: For ``state_dict`` a mapping from names to tensors, read before ``update_weights`` returns and not after; for
    #: ``live`` nothing, the engine shares the model.
    tensors: Mapping[str, Any] | None = None


class Engine(ABC):
    """What engines that give tokens and engines that give text have in common.

    Implementations are asynchronous and safe to call from many tasks of one event loop. ``start`` is awaited
    once before and ``close`` once after use; both are idempotent, and ``close`` works after a failed ``start``.
    """

    #: The plugin's name, used in messages.
    name: ClassVar[str] = "engine"

    @property
    @abstractmethod
    def capabilities(self) -> EngineCapabilities:
        """What this engine can do with its current settings."""

    @abstractmethod
    async def start(self) -> None:
        """Load or connect; raise ``EngineError`` with the cause when that is impossible."""

    @abstractmethod
    async def health(self) -> Health:
        """Whether it can serve now."""

    @abstractmethod
    async def close(self) -> None:
        """Release everything; pending calls end with an abort or an ``EngineError``."""

    def require(self, **wanted: Any) -> None:
        """Raise ``PluginError`` unless every wanted capability is there.

        Example: ``engine.require(logprobs=True, weight_sync="file")``.
        """
        have = self.capabilities
        for capability, value in wanted.items():
            present = getattr(have, capability)
            ok = value in present if isinstance(present, frozenset) else present == value
            if not ok:
                offers = ", ".join(sorted(present)) or "none" if isinstance(present, frozenset) else present
                raise PluginError(
                    f"Engine '{self.name}' lacks {capability}={value!r} (it has: {offers}).",
                    "Choose another engine under `engine.name`, or change the setting that needs it.",
                )


class InferenceEngine(Engine):
    """Samples tokens from the behaviour policy."""

    @abstractmethod
    async def generate(
        self, prompt_ids: TokenArray, sampling: SamplingParams, *, session: str | None = None
    ) -> Generation:
        """Sample one action.

        Args:
            prompt_ids: ``(n_prompt,)`` int32, at least one token.
            sampling: How to sample. Stop ids of the model itself are added by the engine.
            session: Names the episode, for prefix reuse and for ``abort``.

        Raises:
            EngineError: The prompt is empty or leaves no room in the context, or the engine failed.
        """

    @abstractmethod
    async def update_weights(self, weights: WeightSource, version: int) -> None:
        """Take new weights. After it returns no token of an older version is sampled and no stale cache is used.

        Generations in flight go on under the new weights; their ``version_spans`` say where it changed.
        """

    @abstractmethod
    async def abort(self, session: str) -> None:
        """Stop what runs for ``session``; its ``generate`` returns what it has with ``FinishReason.ABORT``."""

    async def rest(self) -> None:
        """Told that nothing is asked for a while: an engine may give memory back, and takes it again by itself.

        Most engines have none to give; the default does nothing.
        """
