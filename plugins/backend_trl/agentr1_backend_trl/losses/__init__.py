"""Loss formulas as pure functions on tensors, one file for each family.

They return the loss of each token, ``(B, C)``, and leave the average to the weights of ``token_weights``. Nothing here
reads a trainer, a model or a configuration.
"""

from __future__ import annotations

from agentr1_backend_trl.losses.cispo import cispo_loss
from agentr1_backend_trl.losses.gspo import gspo_log_ratio, span_mean
from agentr1_backend_trl.losses.kl import kl_k1, kl_k2, kl_k3
from agentr1_backend_trl.losses.mismatch import icepop, mis, tis
from agentr1_backend_trl.losses.ppo import clipped_share, ppo_loss
from agentr1_backend_trl.losses.ratio import LOG_RATIO_CAP, bounded_exp, log_ratio
from agentr1_backend_trl.losses.reinforce import reinforce_loss
from agentr1_backend_trl.losses.value import value_loss

__all__ = [
    "LOG_RATIO_CAP",
    "bounded_exp",
    "cispo_loss",
    "clipped_share",
    "gspo_log_ratio",
    "icepop",
    "kl_k1",
    "kl_k2",
    "kl_k3",
    "log_ratio",
    "mis",
    "ppo_loss",
    "reinforce_loss",
    "span_mean",
    "tis",
    "value_loss",
]
