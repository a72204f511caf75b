"""Step-level reinforcement learning with OpenRLHF.

How the parts meet, in the order in which a run goes through them:

1. ``agentr1 train`` with ``backend.name: openrlhf`` calls ``backend.OpenRLHFBackend.train(job)``. It writes the tasks
   with ``prompts.write_prompts(job)`` (columns ``prompt`` and ``label``, both text; ``prompts.read_label`` makes a task
   of them again) and asks ``command.launch_of(job)`` for OpenRLHF's command line.
2. It starts ``<python> -m agentr1_backend_openrlhf.train <OpenRLHF's arguments>``, where ``python`` is this interpreter
   or the one that ``backend.python`` names. The environment variable ``AGENTR1_OPENRLHF_RUN`` holds the path of the
   resolved run file (``<run folder>/config.yaml``); the folder of that file is the run's folder.
3. ``train`` puts the step trainer in OpenRLHF's place for its own and calls OpenRLHF's own command line.
4. OpenRLHF's rollout workers load ``<site-packages>/agentr1_backend_openrlhf/agent.py``, given as
   ``--train.agent_func_path``, which plays the run file's flow with their engines. ``AGENT_FILE`` is its path.

An existing OpenRLHF launch needs only step 4: the variable, and the flag. Importing this package imports neither torch
nor OpenRLHF.
"""

from __future__ import annotations

from pathlib import Path

#: Environment variable with the path of the run file, for every process of an OpenRLHF launch.
RUN_VARIABLE = "AGENTR1_OPENRLHF_RUN"
#: What ``--train.agent_func_path`` is given.
AGENT_FILE = Path(__file__).with_name("agent.py")

__all__ = ["AGENT_FILE", "RUN_VARIABLE"]
