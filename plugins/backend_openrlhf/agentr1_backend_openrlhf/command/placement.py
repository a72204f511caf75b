"""Which GPUs the models of a launch get: what a run file leaves open, and what OpenRLHF would stop at.

``translate`` calls ``place``. By default everything shares the GPUs that the vLLM engines are given, and sleeps while
it is not its turn.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentr1_backend_openrlhf.command.options import Value
from agentr1_core.errors import ConfigError

#: Share of a GPU's memory for vLLM where it shares the GPU with the trainer.
SHARED_MEMORY = 0.6


def place(given: Mapping[str, Value], *, reference: bool, critic: bool, own_engines: bool = True) -> dict[str, Value]:
    """Options of placement, those of the run file included.

    Args:
        given: Options of the run file.
        reference: Whether there is a reference model.
        critic: Whether there is a critic.
        own_engines: Whether OpenRLHF starts engines; another engine has machines or servers of its own.

    Raises:
        ConfigError: The numbers of GPUs do not fit each other, or are missing.
    """
    if not own_engines:
        return _place_models(given, reference=reference, critic=critic)
    together = bool(given.get("train.colocate_all", True))
    tensor_parallel = _count(given, "vllm.tensor_parallel_size", 1)
    nodes = _count(given, "actor.num_nodes", 1)
    if "actor.num_gpus_per_node" in given:
        per_node = _count(given, "actor.num_gpus_per_node", 1)
        engines = _count(given, "vllm.num_engines", max(1, nodes * per_node // tensor_parallel) if together else 1)
    elif together:
        engines = _count(given, "vllm.num_engines", 1)
        per_node, rest = divmod(engines * tensor_parallel, nodes)
        if rest or not per_node:
            raise ConfigError(
                f"The {engines * tensor_parallel} GPUs of the vLLM engines, which the policy shares, do not fit evenly "
                f"on {nodes} nodes (`backend.actor.num_nodes`).",
                "Change `engine.num_engines` or `engine.tensor_parallel_size`.",
            )
    else:
        raise ConfigError(
            "The policy's GPUs are not said, and it does not share those of the vLLM engines.",
            "Set `backend.actor.num_gpus_per_node`, or `backend.train.colocate_all: true`.",
        )
    if together and nodes * per_node != engines * tensor_parallel:
        raise ConfigError(
            f"The policy has {nodes} x {per_node} GPUs, and the {engines} vLLM engines, which share them, have "
            f"{tensor_parallel} each: that does not fit.",
            "Make `backend.actor.num_nodes` x `backend.actor.num_gpus_per_node` equal to `engine.num_engines` x "
            "`engine.tensor_parallel_size`, or set `backend.train.colocate_all: false`.",
        )
    placed: dict[str, Value] = {"actor.num_nodes": nodes, "actor.num_gpus_per_node": per_node}
    beside = [("ref", reference, bool(given.get("train.colocate_actor_ref"))), ("critic", critic, False)]
    for model, exists, shares in beside:
        if exists:
            placed |= _beside(model, given, nodes, per_node, shared=together or shares)
    if given.get("train.colocate_critic_reward") and critic:
        # OpenRLHF compares the critic's GPUs with those of a reward model, which a run with an agent does not have.
        for size in ("num_nodes", "num_gpus_per_node"):
            placed[f"reward.{size}"] = given.get(f"reward.{size}", placed[f"critic.{size}"])
    placed |= {"train.colocate_all": together, "vllm.num_engines": engines}
    placed |= {"vllm.tensor_parallel_size": tensor_parallel, "vllm.enable_prefix_caching": True}
    if together:
        asleep: dict[str, Value] = {"vllm.enable_sleep": True, "ds.enable_sleep": True}
        placed |= {**asleep, "vllm.gpu_memory_utilization": SHARED_MEMORY}
    return {**placed, **{name: given[name] for name in placed if name in given}}


def _place_models(given: Mapping[str, Value], *, reference: bool, critic: bool) -> dict[str, Value]:
    """The policy, and on the same GPUs whatever stands beside it."""
    nodes, per_node = _count(given, "actor.num_nodes", 1), _count(given, "actor.num_gpus_per_node", 1)
    together = bool(given.get("train.colocate_all", reference or critic))
    placed: dict[str, Value] = {"actor.num_nodes": nodes, "actor.num_gpus_per_node": per_node}
    for model, exists in (("ref", reference), ("critic", critic)):
        if exists:
            placed |= _beside(model, given, nodes, per_node, shared=together)
    placed |= {"train.colocate_all": together, "vllm.num_engines": 0}
    return {**placed, **{name: given[name] for name in placed if name in given}}


def trainer_ranks(options: Mapping[str, Value]) -> int:
    """Data-parallel ranks of the policy: its GPUs, over those that work on one sequence together."""
    gpus = _count(options, "actor.num_nodes", 1) * _count(options, "actor.num_gpus_per_node", 1)
    together = _count(options, "ds.ring_attn_size", 1) * _count(options, "ds.tensor_parallel_size", 1)
    if gpus % together:
        raise ConfigError(
            f"{gpus} GPUs of the policy cannot be shared out in groups of {together} (`backend.ds.ring_attn_size` x "
            "`backend.ds.tensor_parallel_size`).",
            "Change one of them.",
        )
    return gpus // together


def _beside(model: str, given: Mapping[str, Value], nodes: int, per_node: int, *, shared: bool) -> dict[str, Value]:
    own_nodes = _count(given, f"{model}.num_nodes", nodes)
    own = _count(given, f"{model}.num_gpus_per_node", per_node)
    if shared and (own_nodes, own) != (nodes, per_node):
        raise ConfigError(
            f"`backend.{model}` has {own_nodes} x {own} GPUs, and the policy, whose GPUs it shares, has {nodes} x "
            f"{per_node}.",
            f"Remove `backend.{model}.num_nodes` and `backend.{model}.num_gpus_per_node`.",
        )
    return {f"{model}.num_nodes": own_nodes, f"{model}.num_gpus_per_node": own}


def _count(given: Mapping[str, Value], name: str, default: int) -> int:
    value = given.get(name, default)
    if not isinstance(value, int) or value < 1:
        section = "engine." + name.removeprefix("vllm.") if name.startswith("vllm.") else f"backend.{name}"
        raise ConfigError(f"`{section}` is {value}.", "Give at least 1.")
    return value
