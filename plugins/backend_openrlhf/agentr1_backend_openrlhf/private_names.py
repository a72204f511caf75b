"""Everything of OpenRLHF that is used and is no documented interface, in one place, with the versions it holds for.

OpenRLHF has no registry for trainers, samples, estimators or engines, so its classes are subclassed and its command
line is given the subclasses. Nothing of it is changed in place but the names under ``REBOUND``. Other modules take
every name of OpenRLHF from ``find`` or ``plain_class``; none imports it directly.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from agentr1_core.errors import PluginError

#: First version that works, and the first that may not.
OLDEST, TOO_NEW = (0, 11, 2), (0, 12)

#: What is used, where it is, and what for.
NAMES: dict[str, tuple[str, str]] = {
    "AgentExecutorBase": ("openrlhf.utils.agent:AgentExecutorBase", "base of what --train.agent_func_path names"),
    "Experience": ("openrlhf.trainer.ppo_utils.experience:Experience", "one training row, or a batch of them"),
    "RemoteExperienceMaker": (
        "openrlhf.trainer.ppo_utils.experience_maker:RemoteExperienceMaker",
        "its make_experience_batch and compute_advantages_and_returns are overridden; make_experience, args, kl_ctl, "
        "initial_model_group, critic_model_group and tokenizer are used",
    ),
    "SamplesGenerator": (
        "openrlhf.trainer.ppo_utils.samples_generator:SamplesGenerator",
        "its _dispatch_prompts_to_vllm, _generate_vllm and _process_response_into_experience are overridden",
    ),
    "collect_prompts": (
        "openrlhf.trainer.ppo_utils.samples_generator:_collect_prompt_batch",
        "the next prompts of a data loader",
    ),
    "PPOTrainer": (
        "openrlhf.trainer.ppo_trainer:PPOTrainer",
        "the class under @ray.remote; its fit, train_step, ppo_train, evaluate, broadcast_to_vllm and "
        "_compute_rollout_stats are overridden; samples_generator and experience_maker are replaced",
    ),
    "PolicyModelActor": (
        "openrlhf.trainer.ray.ppo_actor:PolicyModelActor",
        "the class under @ray.remote; its init_model_from_pretrained and append are overridden; strategy, actor, "
        "tokenizer and trainer are used",
    ),
    "ActorPPOTrainer": (
        "openrlhf.trainer.ray.ppo_actor:ActorPPOTrainer",
        "its ppo_train and training_step are overridden; replay_buffer, actor and micro_train_batch_size are used",
    ),
    "CriticModelActor": (
        "openrlhf.trainer.ray.ppo_critic:CriticModelActor",
        "the class under @ray.remote; its init_model_from_pretrained and append are overridden",
    ),
    "CriticPPOTrainer": (
        "openrlhf.trainer.ray.ppo_critic:CriticPPOTrainer",
        "its ppo_train and training_step are overridden; replay_buffer, critic and micro_train_batch_size are used",
    ),
    "get_strategy": ("openrlhf.utils:get_strategy", "is given the checked arguments before anything is started"),
    "command": ("openrlhf.cli.train_ppo_ray", "the command line, run as `python -m` would"),
}

#: Of these, what ``train`` replaces in its own process, for the command line to import instead of OpenRLHF's.
REBOUND = ("PPOTrainer", "PolicyModelActor", "CriticModelActor", "get_strategy")


def check_version() -> str:
    """The installed version of OpenRLHF.

    Raises:
        PluginError: It is missing or not supported.
    """
    try:
        found = version("openrlhf")
    except PackageNotFoundError:
        raise PluginError(
            "Backend 'openrlhf': OpenRLHF is not installed in this environment.",
            f"Install `{_wanted()}` here, or name the interpreter of an environment that has it under "
            "`backend.python`.",
        ) from None
    numbers = tuple(int(part) for part in found.split("+")[0].split(".")[:3] if part.isdigit())
    if not OLDEST <= numbers < TOO_NEW:
        raise PluginError(f"Backend 'openrlhf' does not support OpenRLHF {found}.", f"Install `{_wanted()}`.")
    return found


def find(name: str) -> Any:
    """The class, function or module behind one of ``NAMES``.

    Raises:
        PluginError: OpenRLHF is missing, not supported, or has no such thing.
    """
    found = check_version()
    place, purpose = NAMES[name]
    module, _, attribute = place.partition(":")
    try:
        loaded = importlib.import_module(module)
        return getattr(loaded, attribute) if attribute else loaded
    except (ImportError, AttributeError) as error:
        raise PluginError(
            f"Backend 'openrlhf': OpenRLHF {found} has no usable {place} ({purpose}): {error}",
            f"Install `{_wanted()}` with what it needs.",
        ) from error


def plain_class(name: str) -> Any:
    """The class that ``@ray.remote`` wraps.

    Raises:
        PluginError: As ``find``; or Ray wraps classes in another way than it did.
    """
    wrapped = find(name)
    inner = getattr(getattr(wrapped, "__ray_metadata__", None), "modified_class", None)
    bases = [] if inner is None else [base for base in inner.__mro__[1:] if base.__name__ == inner.__name__]
    # Ray subclasses what it decorates under the same name.
    if not bases:
        raise PluginError(
            f"Backend 'openrlhf': {NAMES[name][0]} is no Ray actor class of the known kind.",
            "Install `ray==2.55.0`, which OpenRLHF pins.",
        )
    return bases[0]


def rebind(name: str, replacement: Any) -> None:
    """Put something in the place of one of ``REBOUND``, in the module that the command line imports it from."""
    if name not in REBOUND:
        raise ValueError(f"'{name}' is not among the names that are replaced.")
    find(name)
    module, _, attribute = NAMES[name][0].partition(":")
    setattr(importlib.import_module(module), attribute, replacement)


def _wanted() -> str:
    return f"openrlhf>={'.'.join(map(str, OLDEST))},<{'.'.join(map(str, TOO_NEW))}"
