"""The critic of the GAE family: a value head on the policy's own backbone, or a model of its own.

``StepGRPOTrainer`` makes one when its estimator needs values. The critic has its own optimiser and averages its own
gradients over the ranks, so that the policy's checkpoints, its weight transfers and its adapters never see it.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import nn

from agentr1_backend_trl.losses import span_mean, value_loss
from agentr1_backend_trl.rows_to_tensors import Chunk
from agentr1_core.errors import ConfigError

#: The critic's weights and optimiser in each checkpoint.
CRITIC_FILE = "critic.pt"


class CriticSettings(BaseModel):
    """What a critic can be told."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    #: ``separate``: a model of its own, which starts as a copy of the policy. ``shared``: a head on the policy's
    #: backbone, which the value loss then trains too.
    kind: Literal["separate", "shared"] = "separate"
    #: Folder or hub id that a separate critic starts from, in place of the policy.
    model: str | None = None
    learning_rate: float = Field(default=1e-5, gt=0)
    #: Weight of the value loss beside the policy loss; only felt by a shared backbone.
    weight: float = Field(default=0.5, gt=0)
    #: How far a value may move from that at sampling time before its loss stops falling; ``None`` for no bound.
    clip: float | None = Field(default=0.2, gt=0)
    #: Bound on the norm of the critic's gradient; 0 for none.
    max_grad_norm: float = Field(default=1.0, ge=0)

    @classmethod
    def of(cls, given: CriticSettings | Mapping[str, Any] | None) -> CriticSettings:
        """From settings, or as it is.

        Raises:
            ConfigError: A setting is unknown or wrong.
        """
        if isinstance(given, CriticSettings):
            return given
        try:
            return cls(**(given or {}))
        except (ValidationError, TypeError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": ("critic",), "msg": str(error)}
            raise ConfigError(
                f"critic, setting '{'.'.join(map(str, first['loc']))}': {first['msg']}.",
                f"Its settings are: {', '.join(cls.model_fields)}.",
            ) from error


class Critic:
    """Values of states, and the training of what gives them.

    Args:
        settings: See ``CriticSettings``.
        policy: The policy, unwrapped.
        unit: ``"step"`` values observations, ``"token"`` every state before a sampled token.
        accelerator: Of the trainer.

    Raises:
        ConfigError: The model cannot be copied or loaded.
    """

    def __init__(self, settings: CriticSettings, policy: Any, unit: Literal["step", "token"], accelerator: Any) -> None:
        self.settings = settings
        self.unit = unit
        self._accelerator = accelerator
        self._policy_backbone = _backbone(policy)
        self._own = nn.ModuleDict()
        if settings.kind == "separate":
            self._own["backbone"] = _separate_backbone(settings, policy).float().eval()
            self._own["backbone"].requires_grad_(True)
        reader = self._own["backbone"] if settings.kind == "separate" else policy
        head = nn.Linear(int(reader.config.get_text_config().hidden_size), 1)
        nn.init.zeros_(head.weight)  # every value starts at 0, on every rank
        nn.init.zeros_(head.bias)
        self._own["head"] = head
        self._own.to(accelerator.device)
        self._optimizer = torch.optim.AdamW(self._own.parameters(), lr=settings.learning_rate, weight_decay=0.0)
        self._tapped: torch.Tensor | None = None
        self._armed = False
        self._sums = torch.zeros(2, device=accelerator.device)
        if settings.kind == "shared":
            self._policy_backbone.register_forward_hook(self._tap)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """What the critic's own optimiser trains."""
        return list(self._own.parameters())

    # ------------------------------------------------------------------ values

    def values(self, ids: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """V after reading each token, ``(B, L)`` float32; padding may stand on either side."""
        backbone = self._own["backbone"] if self.settings.kind == "separate" else self._policy_backbone
        positions = (attended.cumsum(1) - 1).clamp(min=0)
        with self._accelerator.autocast():
            out = backbone(input_ids=ids, attention_mask=attended, position_ids=positions, use_cache=False)
        return self._head(out.last_hidden_state)

    def watch_policy(self) -> None:
        """Keep the hidden states of the policy's next forward, for a shared backbone."""
        self._armed = self.settings.kind == "shared"

    def loss(self, chunk: Chunk, scale: float) -> torch.Tensor:
        """This rank's share of the weighted value loss of a chunk, times ``scale``; notes its figures.

        Every step, or token, of the optimiser step over all ranks weighs the same. With a shared backbone
        ``watch_policy`` must have been called before the chunk's forward.
        """
        if "returns" not in chunk:  # padding rows only
            self._tapped = None
            return chunk["weights"].new_zeros(())
        mask, spans = chunk["loss_mask"].bool(), chunk["span_ids"]
        if self.settings.kind == "shared":
            if self._tapped is None:
                raise RuntimeError("The policy's hidden states of this chunk were not kept.")
            everything, self._tapped = self._head(self._tapped), None
        else:
            ids = torch.cat([chunk["prompt_ids"], chunk["completion_ids"]], dim=1)
            everything = self.values(ids, torch.cat([chunk["prompt_mask"], chunk["completion_mask"]], dim=1))
        first = chunk["prompt_ids"].size(1) - 1
        found = everything[:, first:-1]  # the state before each completion token
        targets, old = chunk["returns"], chunk["old_values"]
        if self.unit == "step":
            # One value a step, before its first token; a masked first token must not hide the step's return.
            targets, old = span_mean(targets, mask, spans), span_mean(old, mask, spans)
            trains = span_mean(mask.float(), mask, spans) > 0
            before = torch.nn.functional.pad(spans, (1, 0), value=-1)[:, :-1]
            mask = trains & (spans != before) & (spans >= 0)
        count = max(chunk["window_steps" if self.unit == "step" else "window_tokens"], 1)
        per_value = value_loss(found, targets, old, self.settings.clip)
        total = torch.where(mask, per_value, torch.zeros_like(per_value)).sum() / count
        clip = self.settings.clip
        outside = (found - old).abs() > clip if clip is not None else torch.zeros_like(mask)
        self._sums += torch.stack([total.detach(), (mask & outside).sum() / count])
        return self.settings.weight * scale * total

    # ------------------------------------------------------------------ the optimiser step

    def step(self) -> dict[str, float]:
        """Average the gradients over the ranks, take one step, and give the figures of it. Reached by every rank."""
        accelerator = self._accelerator
        flat = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        if accelerator.num_processes > 1:
            joined = accelerator.reduce(torch.cat([g.reshape(-1) for g in flat]), reduction="mean")
            flat = [part.view_as(p) for part, p in zip(joined.split([g.numel() for g in flat]), flat, strict=True)]
        for parameter, gradient in zip(self.parameters, flat, strict=True):
            # The weight of the value loss is about a shared backbone; the critic's own step does not depend on it.
            parameter.grad = gradient / self.settings.weight
        bound = self.settings.max_grad_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(self.parameters, bound)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        sums = accelerator.reduce(self._sums, reduction="sum").tolist()
        self._sums = torch.zeros_like(self._sums)
        return {"critic/loss": sums[0], "critic/clip_ratio": sums[1], "critic/grad_norm": float(norm)}

    # ------------------------------------------------------------------ checkpoints

    def save(self, folder: Path) -> None:
        """Write weights and optimiser into a checkpoint's folder."""
        torch.save({"weights": self._own.state_dict(), "optimizer": self._optimizer.state_dict()}, folder / CRITIC_FILE)

    def load(self, folder: Path) -> None:
        """Read them back.

        Raises:
            ConfigError: The checkpoint has no critic.
        """
        path = folder / CRITIC_FILE
        if not path.is_file():
            raise ConfigError(
                f"The checkpoint '{folder}' has no {CRITIC_FILE}, but the estimator needs a critic.",
                "Resume a run that was started with this estimator, or start a new one.",
            )
        saved = torch.load(path, map_location=self._accelerator.device, weights_only=True)
        self._own.load_state_dict(saved["weights"])
        self._optimizer.load_state_dict(saved["optimizer"])

    # ------------------------------------------------------------------ inside

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self._own["head"](hidden.float()).squeeze(-1)
        return values

    def _tap(self, module: nn.Module, args: Any, output: Any) -> None:
        if self._armed:
            self._tapped, self._armed = output.last_hidden_state, False


def explained_variance(values: Any, returns: Any) -> float:
    """``1 - Var(R - V) / Var(R)``: 1 for a perfect critic, 0 for one that knows no more than the mean; 0 without
    spread."""
    spread = float(returns.var()) if len(returns) else 0.0
    return 1.0 - float((returns - values).var()) / spread if spread > 1e-12 else 0.0


def _backbone(policy: Any) -> Any:
    """The decoder under the language-model head, adapters included."""
    whole = policy.get_base_model() if hasattr(policy, "get_base_model") else policy
    return whole.base_model


def _separate_backbone(settings: CriticSettings, policy: Any) -> Any:
    if settings.model is None:
        if hasattr(policy, "get_base_model"):
            raise ConfigError(
                "A separate critic cannot be copied from a policy with adapters.",
                "Name the model it starts from: critic.model, or set critic.kind to 'shared'.",
            )
        return copy.deepcopy(policy.base_model)
    from transformers import AutoModel

    try:
        found = AutoModel.from_pretrained(settings.model, dtype=torch.float32)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"critic.model: '{settings.model}' cannot be loaded: {error}", "Name a folder or a hub id of a model."
        ) from error
    sizes = [model.get_input_embeddings().num_embeddings for model in (found, policy)]
    if sizes[0] != sizes[1]:
        raise ConfigError(
            f"critic.model: '{settings.model}' has {sizes[0]} token embeddings, the policy {sizes[1]}; token ids would "
            "not mean the same.",
            "Use a model of the same family.",
        )
    return found
