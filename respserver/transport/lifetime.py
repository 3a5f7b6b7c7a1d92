"""What both roads to a WebSocket share: whom to let in, what to run, when to give up, and the close code at the end.

Nothing here knows how messages travel; ``websocket.py`` and ``asgi_socket.py`` do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

from respserver.config import Limits
from respserver.errors import ApiError
from respserver.logger import get_logger
from respserver.message_socket import Socket, SocketClosed

log = get_logger("respserver.transport")

T = TypeVar("T")

Headers: TypeAlias = list[tuple[str, str]]
"""Header fields in order, names in lower case."""
Admit: TypeAlias = Callable[[str, Headers], ApiError | T]
"""Gets the request target and headers before the 101: an error refuses, anything else is handed to the session."""
Run: TypeAlias = Callable[[Socket, T], Awaitable[None]]
"""A session: serves the socket until it is over."""

CLOSE_SECONDS = 5.0
"""How long a peer may take to be told of a close and to answer it."""

OUTBOX_MULTIPLE = 4
ECHOES = 2
"""How far a peer may fall behind before it is given up: turns wait for it at the first limit of its outbox, so that a
multiple of it is no slow peer's doing. On top comes what a turn writes before it waits for the first time: the request
as it is echoed in ``response.created`` and ``response.in_progress``."""

NORMAL = 1000
UNSUPPORTED = 1003
NO_CLOSE_FRAME = 1006
"""Stands for a missing close frame; never on the wire."""
TOO_BIG = 1009
INTERNAL = 1011

NOT_TEXT = "Only text messages are accepted."


def is_too_far_behind(pending_bytes: int, limits: Limits) -> bool:
    """Whether no more may be written to a peer that has so much to take yet: the last bound, behind ``drain``."""
    return pending_bytes > OUTBOX_MULTIPLE * limits.outbox_bytes + ECHOES * limits.message_bytes


async def run_to_close(run: Run[T], socket: Socket, admitted: T) -> None:
    """Run a session and close its socket: 1000 when it returns, 1011 when it raises, which is logged and goes no
    further (field case F37)."""
    code = NORMAL
    try:
        await run(socket, admitted)
    except* SocketClosed:
        pass
    except* Exception as faults:
        log.exception("session_fault", exc_info=faults)
        code = INTERNAL
    await socket.close(code)
