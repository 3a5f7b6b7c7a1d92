"""``respserver``: a server for the Responses API over WebSocket, in both designs of the mode, and over plain HTTP.

It is one process on Trio with one sampling loop. In shipped mode the loop waits between turns (``response.create`` with
``previous_response_id``), in prototype mode inside a turn (``response.done``, ``response.append``). An embedded model
without weights answers by script or by rehearsing tools, so that clients can be developed and tested offline. It is not
a model, not a gateway to other services, and no copy of any of them.

This file only hands names on, and imports a room when one of its names is first used: whoever asks for the version
alone does not pay for a server.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from respserver.client import Client
    from respserver.config import Config, Limits, Mode
    from respserver.embed import RunningServer, open_server, start_server
    from respserver.engines.sim import Script
    from respserver.server import serve

__version__ = "0.1.0"

__all__ = [
    "Client",
    "Config",
    "Limits",
    "Mode",
    "RunningServer",
    "Script",
    "open_server",
    "serve",
    "start_server",
]

_HOMES = {
    "Client": "respserver.client",
    "Config": "respserver.config",
    "Limits": "respserver.config",
    "Mode": "respserver.config",
    "RunningServer": "respserver.embed",
    "Script": "respserver.engines.sim",
    "open_server": "respserver.embed",
    "serve": "respserver.server",
    "start_server": "respserver.embed",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
