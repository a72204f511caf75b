"""What engines that run as servers have in common: processes, HTTP, several servers, weights for those that return.

Engine plugins build on it, whatever server they drive. It knows no server's routes and imports no framework.
"""

from agentr1_core.serving.answers import generation, version_number
from agentr1_core.serving.client import (
    RequestRefused,
    ServerClient,
    ServerFault,
    ServerTimeout,
    ServerUnreachable,
    is_loopback,
)
from agentr1_core.serving.engine import Call, ServedEngine, Servers, own_share
from agentr1_core.serving.fleet import Fleet, Member
from agentr1_core.serving.interpreter import UNKNOWN, versions_in
from agentr1_core.serving.launch import Launch, log_file, server_environment, start_server, use_servers
from agentr1_core.serving.managed import ManagedServer
from agentr1_core.serving.process import ServerProcess, address_towards, free_port
from agentr1_core.serving.settings import ServerSettings
from agentr1_core.serving.spool import KeptFolder, KeptWeights, WeightSpool

__all__ = [
    "UNKNOWN",
    "Call",
    "Fleet",
    "KeptFolder",
    "KeptWeights",
    "Launch",
    "ManagedServer",
    "Member",
    "RequestRefused",
    "ServedEngine",
    "ServerClient",
    "ServerFault",
    "ServerProcess",
    "ServerSettings",
    "ServerTimeout",
    "ServerUnreachable",
    "Servers",
    "WeightSpool",
    "address_towards",
    "free_port",
    "generation",
    "is_loopback",
    "log_file",
    "own_share",
    "server_environment",
    "start_server",
    "use_servers",
    "version_number",
    "versions_in",
]
