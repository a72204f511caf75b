"""What ``--train.agent_func_path`` of an OpenRLHF launch is given: OpenRLHF loads this file and uses its class.

The run file is named by the environment variable ``AGENTR1_OPENRLHF_RUN``.
"""

from agentr1_backend_openrlhf.executor import AgentExecutor

__all__ = ["AgentExecutor"]
