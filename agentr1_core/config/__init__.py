"""The run configuration: its typed schema, how a run file is read, and what is said about a wrong one.

``agentr1`` reads a run file with ``load_config`` and builds the job from the ``RunConfig`` it gets. Nothing here
imports a plugin; plugin settings are checked when the job is built.
"""

from agentr1_core.config.load import check_config, dump, load_config
from agentr1_core.config.schema import Named, RunConfig

__all__ = ["Named", "RunConfig", "check_config", "dump", "load_config"]
