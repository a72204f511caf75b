"""From a training job to the command line of OpenRLHF.

``launch_arguments(job, prompts)`` gives the arguments of ``openrlhf.cli.train_ppo_ray``, without the program. ``job`` is
a ``TrainingJob`` (its ``settings`` are the run file's ``backend`` section), ``prompts`` the file of tasks, with the
columns ``prompt`` and ``label``. ``launch_settings`` names the keys of ``backend`` that it reads; those of the launcher
itself (``python``, ``timeout_s``) are in ``backend.LaunchSettings``.
"""
