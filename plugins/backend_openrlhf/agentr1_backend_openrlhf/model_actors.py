"""OpenRLHF's policy and critic workers, with the number of optimiser steps set by the trainer.

OpenRLHF fixes the rows of an optimiser step for the whole run. Here each round has its own number of rows, so the
trainer calls ``plan_round`` and the workers cut what they were given into that many steps; DeepSpeed is told where each
one ends. The loss, its average over an optimiser step, the optimiser and the checkpoints stay OpenRLHF's.
"""

from __future__ import annotations

from typing import Any

import torch

from agentr1_backend_openrlhf.experiences import VALUE_MASK
from agentr1_backend_openrlhf.private_names import find, plain_class

_PolicyActor: Any = plain_class("PolicyModelActor")
_CriticActor: Any = plain_class("CriticModelActor")
_PolicyTrainer: Any = find("ActorPPOTrainer")
_CriticTrainer: Any = find("CriticPPOTrainer")
#: Tokens of a micro-batch of nothing but padding: too few to weigh in any mean, and still a divisor.
NO_TOKENS = 1e-6


class RoundOfSteps:
    """Cuts a round of micro-batches into optimiser steps. Mixed into OpenRLHF's two trainers."""

    #: Optimiser steps of one pass over the replay buffer; set before each round.
    optimizer_steps: int
    _per_step: int
    _loss: float
    _loss_name: str

    def _engine(self: Any) -> Any:
        """The DeepSpeed engine."""
        raise NotImplementedError

    def begin_round(self: Any) -> None:
        """Tell DeepSpeed and OpenRLHF how many micro-batches an optimiser step has this time."""
        n_micro = len(self.replay_buffer) // self.micro_train_batch_size
        if n_micro * self.micro_train_batch_size != len(self.replay_buffer) or n_micro % self.optimizer_steps:
            raise RuntimeError(
                f"{len(self.replay_buffer)} rows on this rank do not make {self.optimizer_steps} optimiser steps of "
                f"micro-batches of {self.micro_train_batch_size} rows."
            )
        self._per_step = n_micro // self.optimizer_steps
        self._loss = 0.0
        self.strategy.accumulated_gradient = self._per_step
        self.strategy.time_steps["ema"] = 0  # OpenRLHF counts micro-batches modulo those of a step
        engine = self._engine()
        engine.set_train_batch_size(self._per_step * engine.train_micro_batch_size_per_gpu() * engine.dp_world_size)

    def mark_boundary(self: Any, step: int) -> None:
        """Before the micro-batch ``step`` of a pass: whether it is the last of its optimiser step."""
        self._engine().set_gradient_accumulation_boundary((step + 1) % self._per_step == 0)

    def add_loss(self: Any, loss: float) -> None:
        """Add this rank's share of an optimiser step's loss, which OpenRLHF scales up by ranks and micro-batches."""
        self._loss += loss / self._per_step

    def mean_loss(self: Any) -> float:
        """Mean loss of the round's optimiser steps, over all ranks. Every rank calls it."""
        total = self.strategy.all_reduce({"loss": torch.tensor(self._loss)}, "mean")["loss"]
        return float(total) / (self.optimizer_steps * self.max_epochs)


class StepPolicyTrainer(_PolicyTrainer, RoundOfSteps):  # type: ignore[misc]
    """OpenRLHF's policy trainer on a round of rows."""

    def _engine(self) -> Any:
        return self.actor.model

    def ppo_train(self, kl_ctl: float) -> dict[str, Any]:
        """One round; adds ``agentr1/loss``, the exact mean of its optimiser steps."""
        self.begin_round()
        status = super().ppo_train(kl_ctl)
        status["agentr1/loss"] = self.mean_loss()
        return dict(status)

    def training_step(self, experience: Any, kl_ctl: float, step: int, loss_batch_info: Any = None) -> dict[str, Any]:
        self.mark_boundary(step)
        status = super().training_step(experience, kl_ctl, step, loss_batch_info)
        if not status["num_action_tokens"]:
            # Nothing but padding: means over no tokens are NaN, and would be in every sum.
            status["metrics"] = {
                name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else value
                for name, value in status["metrics"].items()
            }
            # OpenRLHF divides by the tokens of all ranks, of which there may be none either.
            status["num_action_tokens"] = NO_TOKENS
        self.add_loss(float(status["metrics"]["policy_loss"]))
        return dict(status)


class StepCriticTrainer(_CriticTrainer, RoundOfSteps):  # type: ignore[misc]
    """OpenRLHF's critic trainer on a round of rows."""

    def _engine(self) -> Any:
        return self.critic

    def ppo_train(self) -> dict[str, Any]:
        """One round; adds ``agentr1/critic_loss`` and ``agentr1/critic_grad_norm``."""
        self.begin_round()
        status = super().ppo_train()
        status["agentr1/critic_loss"] = self.mean_loss()
        status["agentr1/critic_grad_norm"] = float(self.strategy.get_grad_norm(self.critic))
        return dict(status)

    def training_step(self, experience: Any, step: int, loss_batch_info: Any = None) -> dict[str, Any]:
        self.mark_boundary(step)
        status = super().training_step(experience, step, loss_batch_info)
        if not experience.action_mask.any():
            status = {name: value if value == value else 0.0 for name, value in status.items()}
        self.add_loss(float(status["critic_loss"]))
        return dict(status)


class StepPolicyActor(_PolicyActor):  # type: ignore[misc]
    """OpenRLHF's policy worker."""

    def init_model_from_pretrained(self, *args: Any, **kwargs: Any) -> None:
        super().init_model_from_pretrained(*args, **kwargs)
        self.trainer.__class__ = StepPolicyTrainer

    def append(self, experience: Any) -> None:
        """Keep a batch for the next round."""
        experience.info.pop(VALUE_MASK, None)
        super().append(experience)

    def plan_round(self, optimizer_steps: int) -> None:
        """Set the optimiser steps of the next round."""
        self.trainer.optimizer_steps = optimizer_steps

    def forget_round(self) -> None:
        """Drop what was kept for a round in which the policy does not train."""
        self.trainer.replay_buffer.clear()

    def write_weights(self, folder: str) -> None:
        """Write the model in the Hugging Face layout. Every rank calls it; the first one writes."""
        self.strategy.save_model(self.actor, self.tokenizer, folder)


class StepCriticActor(_CriticActor):  # type: ignore[misc]
    """OpenRLHF's critic worker."""

    def init_model_from_pretrained(self, *args: Any, **kwargs: Any) -> None:
        super().init_model_from_pretrained(*args, **kwargs)
        self.trainer.__class__ = StepCriticTrainer

    def append(self, experience: Any) -> None:
        """Keep a batch for the next round, under the critic's own mask."""
        mask = experience.info.pop(VALUE_MASK, None)
        if mask is not None:
            experience.action_mask = mask
        super().append(experience)

    def plan_round(self, optimizer_steps: int) -> None:
        """Set the optimiser steps of the next round."""
        self.trainer.optimizer_steps = optimizer_steps
