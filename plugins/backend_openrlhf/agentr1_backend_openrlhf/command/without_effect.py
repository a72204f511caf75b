"""Options of OpenRLHF that do nothing unless another one is set, such as the rank's companions without a rank.

OpenRLHF ignores them without a word; ``translate`` refuses them, so that a run file says what happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from agentr1_backend_openrlhf.command.options import Options, Value
from agentr1_core.errors import ConfigError

#: Options, or sections ending in a dot; when they have an effect; and what gives them one.
_NEEDS: tuple[tuple[tuple[str, ...], Callable[[Mapping[str, Any]], bool], str], ...] = (
    (("vllm.",), lambda at: at["vllm.num_engines"] > 0, "Set `engine: openrlhf`"),
    (("ref.", "algo.kl."), lambda at: at["algo.kl.init_coef"] > 0, "Set `backend.algo.kl.init_coef` above 0"),
    (
        ("critic.", "train.colocate_critic_reward"),
        lambda at: at["algo.advantage.estimator"] == "gae",
        "Choose an `algorithm.estimator` with values, such as `step_gae`",
    ),
    (("reward.",), lambda at: at["train.colocate_critic_reward"], "Set `backend.train.colocate_critic_reward`"),
    (("ds.lora.",), lambda at: at["ds.lora.rank"] > 0, "Set `backend.ds.lora.rank` above 0"),
    (("actor.muon.",), lambda at: at["actor.optim"] == "muon", "Set `backend.actor.optim: muon`"),
    (("critic.muon.",), lambda at: at["critic.optim"] == "muon", "Set `backend.critic.optim: muon`"),
    (("train.ema_beta",), lambda at: at["train.enable_ema"], "Set `backend.train.enable_ema`"),
    (("ds.ring_attn_head_stride",), lambda at: at["ds.ring_attn_size"] > 1, "Set `backend.ds.ring_attn_size` above 1"),
    (("logger.wandb.",), lambda at: at["logger.wandb.key"] is not None, "Set `backend.logger.wandb.key`"),
)
#: Those that switch a section on or off may always be given.
_SWITCHES = frozenset({"algo.kl.init_coef", "ds.lora.rank", "logger.wandb.key"})


def refuse_without_effect(given: Mapping[str, Value], chosen: Mapping[str, Value], options: Options) -> None:
    """Raise for an option of the run file that would do nothing.

    Args:
        given: What the run file gives.
        chosen: What the launch says in all.
        options: For the defaults of the others.

    Raises:
        ConfigError: Naming the key and what gives it an effect.
    """
    values = {option.name: chosen.get(option.name, option.default) for option in options}
    for name in given:
        for names, has_effect, mend in _NEEDS:
            covered = name in names or name.startswith(tuple(each for each in names if each.endswith(".")))
            if covered and name not in _SWITCHES and not has_effect(values):
                raise ConfigError(f"`backend.{name}` would have no effect in this run.", f"{mend}, or remove it.")
