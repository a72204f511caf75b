"""What engines that run as servers have in common: processes, HTTP, several servers, weights for those that return.

Engine plugins build on it, whatever server they drive. It knows no server's routes and imports no framework.
"""

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
from agentr1_core.serving.managed import ManagedServer
from agentr1_core.serving.process import ServerProcess, free_port
from agentr1_core.serving.spool import KeptFolder, KeptWeights, WeightSpool

__all__ = [
    "Call",
    "Fleet",
    "KeptFolder",
    "KeptWeights",
    "ManagedServer",
    "Member",
    "RequestRefused",
    "ServedEngine",
    "ServerClient",
    "ServerFault",
    "ServerProcess",
    "ServerTimeout",
    "ServerUnreachable",
    "Servers",
    "WeightSpool",
    "free_port",
    "is_loopback",
    "own_share",
]
