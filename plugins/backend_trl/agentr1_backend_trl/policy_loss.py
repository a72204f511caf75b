"""The policy loss of agentr1's own formulas, in place of TRL's ``loss_type``.

``StepGRPOTrainer(loss=...)`` and ``backend.loss`` in a run file choose it. ``PolicyLoss`` says which formula with which
bounds, ``own_loss`` computes this rank's share of it for one chunk. The formulas themselves are in ``losses``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agentr1_backend_trl import losses
from agentr1_backend_trl.figures import note_chunk
from agentr1_backend_trl.importance import ImportanceCorrection
from agentr1_backend_trl.loss_plan import LossPlan
from agentr1_backend_trl.rows_to_tensors import Chunk
from agentr1_core.errors import ConfigError
from agentr1_core.rows import WeightMode

#: Bounds and average of each formula where the settings give none, as in its paper.
_DEFAULTS: Mapping[str, tuple[float, float, WeightMode]] = {
    "ppo": (0.2, 0.2, "token-mean"),
    "gspo": (3e-4, 4e-4, "step-mean"),
    "cispo": (1.0, 0.28, "token-mean"),
    "reinforce": (0.0, 0.0, "token-mean"),
}
_KL = {"k1": losses.kl_k1, "k2": losses.kl_k2, "k3": losses.kl_k3}


class PolicyLoss(BaseModel):
    """Which loss, and how it is averaged over the optimiser step."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    #: ``gspo`` takes one ratio for each step's action, so that merging steps into rows changes nothing.
    name: Literal["ppo", "gspo", "cispo", "reinforce"]
    #: How far below and above 1 a ratio counts; by default the formula's own: see ``_DEFAULTS``.
    clip_low: float | None = Field(default=None, ge=0, le=1)
    clip_high: float | None = Field(default=None, ge=0)
    #: Bound on the loss of bad actions, in advantages; ``None`` for no bound. For ``ppo`` and ``gspo``.
    dual_clip: float | None = Field(default=3.0, gt=1)
    #: A mode of ``token_weights``; by default the formula's own.
    aggregation: WeightMode | None = None
    #: Tokens that the aggregation ``dr-grpo`` divides by.
    constant: float | None = Field(default=None, gt=0)
    #: Estimator of the KL term. Its weight is ``GRPOConfig.beta``; ``use_bias_correction_kl`` multiplies it by the
    #: token's ratio, as in TRL, which makes the gradient of all three that of the KL.
    kl: Literal["k1", "k2", "k3"] = "k3"
    #: Correction for an engine with weights of its own; see ``losses.mismatch``. ``None`` leaves it to TRL's settings.
    correction: Literal["tis", "mis", "icepop"] | None = None
    #: Largest and, for ``icepop``, smallest weight that counts.
    correction_high: float = Field(default=2.0, gt=0)
    correction_low: float = Field(default=0.5, ge=0)

    @classmethod
    def of(cls, given: PolicyLoss | Mapping[str, Any] | str) -> PolicyLoss:
        """From a name, from settings with a ``name``, or as it is.

        Raises:
            ConfigError: A setting is unknown or wrong.
        """
        if isinstance(given, PolicyLoss):
            return given
        try:
            found = cls(**({"name": given} if isinstance(given, str) else given))
        except (ValidationError, TypeError) as error:
            first = error.errors()[0] if isinstance(error, ValidationError) else {"loc": ("loss",), "msg": str(error)}
            raise ConfigError(
                f"loss, setting '{'.'.join(map(str, first['loc']))}': {first['msg']}.",
                f"Its settings are: {', '.join(cls.model_fields)}.",
            ) from error
        if (found.plan.mode == "dr-grpo") != (found.constant is not None):
            raise ConfigError(
                f"loss: aggregation '{found.plan.mode}' with the constant {found.constant}.",
                "Give a constant with 'dr-grpo', and none with the other modes.",
            )
        return found

    @property
    def bounds(self) -> tuple[float, float]:
        """The lower and the upper clip."""
        low, high, _ = _DEFAULTS[self.name]
        return low if self.clip_low is None else self.clip_low, high if self.clip_high is None else self.clip_high

    @property
    def plan(self) -> LossPlan:
        """How token losses are averaged."""
        return LossPlan(self.name, self.aggregation or _DEFAULTS[self.name][2], self.constant)

    def engine_correction(self) -> ImportanceCorrection | None:
        """The correction it asks for."""
        match self.correction:
            case "tis":
                return ImportanceCorrection("token_truncate", self.correction_high)
            case "mis":
                return ImportanceCorrection("token_mask", self.correction_high)
            case "icepop":
                return ImportanceCorrection("token_mask", self.correction_high, self.correction_low)
        return None

    def per_token(
        self,
        logps: torch.Tensor,
        log_ratios: torch.Tensor,
        advantages: torch.Tensor,
        mask: torch.Tensor,
        spans: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """The loss of each token and the log-ratio it used, ``(B, C)`` each."""
        low, high = self.bounds
        if self.name == "reinforce":
            return losses.reinforce_loss(logps, advantages), log_ratios
        if self.name == "cispo":
            return losses.cispo_loss(logps, log_ratios, advantages, low, high), log_ratios
        if self.name == "gspo":
            log_ratios = losses.gspo_log_ratio(logps, log_ratios, mask, spans)
        return losses.ppo_loss(log_ratios, advantages, low, high, self.dual_clip), log_ratios


def own_loss(trainer: Any, model: Any, chunk: Chunk) -> torch.Tensor:
    """This rank's share of the loss, times the number of ranks, because gradients are averaged over them.

    Args:
        trainer: The ``StepGRPOTrainer``.
        model: What to run forward.
        chunk: The rows; B rows with C completion positions.
    """
    told: PolicyLoss = trainer.policy_loss
    mask, spans = chunk["loss_mask"], chunk["span_ids"]
    weights = chunk["weights"] * loss_scale(trainer)
    ids = torch.cat([chunk["prompt_ids"], chunk["completion_ids"]], dim=1)
    attended = torch.cat([chunk["prompt_mask"], chunk["completion_mask"]], dim=1)
    _, _, balance = trainer._get_per_token_logps_and_entropies(
        model, ids, attended, mask.size(1), compute_entropy=True, compute_aux_loss=trainer.aux_loss_enabled
    )
    raw_logps, entropies = trainer.take_forward()
    kept = mask.bool()
    logps = torch.where(kept, raw_logps, torch.zeros_like(raw_logps))
    log_ratios = losses.log_ratio(logps, chunk.get("old_logps", logps.detach()), mask)
    per_token, used = told.per_token(logps, log_ratios, chunk["advantages"], mask, spans)
    loss = (per_token * weights).sum()
    kl = None
    if trainer.beta != 0.0:
        kl = _KL[told.kl](logps, torch.where(kept, chunk["ref_logps"], torch.zeros_like(logps)))
        if trainer.args.use_bias_correction_kl:
            kl = kl * losses.bounded_exp(log_ratios)
        loss = loss + trainer.beta * (kl * weights).sum()
    if trainer.entropy_coef != 0.0:
        mean = torch.where(kept, entropies, torch.zeros_like(entropies)).sum() / max(chunk["window_tokens"], 1)
        loss = loss - trainer.entropy_coef * mean * loss_scale(trainer)
    if balance is not None:
        accumulation = trainer.current_gradient_accumulation_steps if trainer.model.training else 1
        loss = loss + trainer.router_aux_loss_coef * chunk["share"] * balance / accumulation
    _note(trainer, chunk, logps.detach(), entropies, used.detach(), kl, loss)
    return loss


def loss_scale(trainer: Any) -> float:
    """What a share of the loss is multiplied by: the ranks, and the share of the accumulation steps that a generation
    batch has where several feed one optimiser step."""
    n_processes = float(trainer.accelerator.num_processes)
    if not (trainer.model.training and trainer.schedule.shared):
        return n_processes
    return n_processes * float(trainer.args.steps_per_generation / trainer.current_gradient_accumulation_steps)


def _note(
    trainer: Any,
    chunk: Chunk,
    logps: torch.Tensor,
    entropies: torch.Tensor,
    used: torch.Tensor,
    kl: torch.Tensor | None,
    loss: torch.Tensor,
) -> None:
    """Add the chunk to the figures of the optimiser step."""
    advantages = chunk["advantages"]
    if trainer.policy_loss.name == "reinforce":
        low = high = torch.zeros_like(advantages)
    else:
        low, high = losses.clipped_share(used, advantages, *trainer.policy_loss.bounds)
    more = {
        "clip_ratio/low_mean": low,
        "clip_ratio/high_mean": high,
        "ratio_capped": (used > losses.LOG_RATIO_CAP).float(),
    }
    note_chunk(trainer.tokens, chunk, logps, loss, kl=kl, entropy=entropies, **more)
