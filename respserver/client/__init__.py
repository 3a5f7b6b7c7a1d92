"""A small Trio client for both transports and both designs: what examples, benchmarks and the conformance suite use.

It stands apart on ``schema/``, ``errors`` and ``http11``, so that it judges any server and leans on none. A rollout may
survive the loss of its connection; nothing else here reconnects or retries: what happened is what the caller sees.
"""

from respserver.client.client import Client
from respserver.client.connection import Connection, Turn
from respserver.client.rollout import Rollout
from respserver.client.tools import Tool, ToolNotFound
from respserver.client.wire import ServerMessage, event_type
from respserver.errors import ConnectionLost

__all__ = [
    "Client",
    "Connection",
    "ConnectionLost",
    "Rollout",
    "ServerMessage",
    "Tool",
    "ToolNotFound",
    "Turn",
    "event_type",
]
