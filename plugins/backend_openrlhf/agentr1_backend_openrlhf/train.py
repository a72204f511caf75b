"""``python -m agentr1_backend_openrlhf.train``: OpenRLHF's command line with the step trainer.

It takes exactly the arguments of ``python -m openrlhf.cli.train_ppo_ray`` and runs that very module, after putting its
own trainer and workers where that module imports them from; the agent need not be named. The run file is named by the
environment.
"""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from typing import Any

from agentr1_backend_openrlhf import AGENT_FILE, RUN_VARIABLE
from agentr1_backend_openrlhf.private_names import NAMES, find, rebind
from agentr1_backend_openrlhf.run import Run, load_run
from agentr1_core.errors import AgentR1Error

AGENT_FLAG = "--train.agent_func_path"
#: What OpenRLHF itself hands to Ray's workers, with its defaults.
_OPENRLHF_ENVIRONMENT = {
    "TOKENIZERS_PARALLELISM": "true",
    "NCCL_DEBUG": "WARN",
    "RAY_ENABLE_ZERO_COPY_TORCH_TENSORS": "1",
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a launch to its end.

    Raises:
        AgentR1Error: The run file, OpenRLHF's version or its arguments are wrong.
    """
    run = load_run()
    _put_step_trainer_in_place(run)
    _start_ray(run)
    sys.argv = [NAMES["command"][0], *with_agent(sys.argv[1:] if arguments is None else arguments)]
    runpy.run_module(NAMES["command"][0], run_name="__main__")


def with_agent(arguments: Sequence[str]) -> list[str]:
    """OpenRLHF's arguments with the agent that plays the run file, unless they name one."""
    named = any(word.partition("=")[0] == AGENT_FLAG for word in arguments)
    return [*arguments, *([] if named else [AGENT_FLAG, str(AGENT_FILE)])]


def _put_step_trainer_in_place(run: Run) -> None:
    import ray

    from agentr1_backend_openrlhf.checks import check_arguments
    from agentr1_backend_openrlhf.model_actors import StepCriticActor, StepPolicyActor
    from agentr1_backend_openrlhf.trainer import StepPPOTrainer

    make_strategy = find("get_strategy")

    def checked_strategy(args: Any) -> Any:
        check_arguments(args, run)
        return make_strategy(args)

    rebind("PPOTrainer", ray.remote(StepPPOTrainer))
    rebind("PolicyModelActor", ray.remote(num_gpus=1)(StepPolicyActor))
    rebind("CriticModelActor", ray.remote(num_gpus=1)(StepCriticActor))
    rebind("get_strategy", checked_strategy)


def _start_ray(run: Run) -> None:
    """As OpenRLHF would, with the name of the run file for workers that were not started from here."""
    import ray

    if ray.is_initialized():
        return
    told = {name: os.environ.get(name, default) for name, default in _OPENRLHF_ENVIRONMENT.items()}
    ray.init(runtime_env={"env_vars": {**told, RUN_VARIABLE: str(run.path)}})


if __name__ == "__main__":
    try:
        main()
    except AgentR1Error as error:
        sys.exit(f"Error: {error}")
