"""From a training job to the command line of OpenRLHF.

``write_prompts(job)`` (in ``prompts``) writes the tasks, ``launch_arguments(job)`` gives the arguments of
``openrlhf.cli.train_ppo_ray`` without the programme, and ``Launch`` is the whole of it with its environment. A job's
``settings`` are the run file's ``backend`` section: OpenRLHF's own options, but for ``OWN_SETTINGS``, which are the
launcher's. Nothing here imports torch or OpenRLHF, and nothing is started.
"""

from agentr1_backend_openrlhf.command.launch import Launch, launch_of
from agentr1_backend_openrlhf.command.options import known_options
from agentr1_backend_openrlhf.command.translate import OWN_SETTINGS, launch_arguments, launch_options

__all__ = ["OWN_SETTINGS", "Launch", "known_options", "launch_arguments", "launch_of", "launch_options"]
