"""WebSocket over an ASGI scope: for an upgrade on a connection that has already carried HTTP, which is hypercorn's.

The same session runs on it, with weaker promises than ``websocket.py`` gives, because the frames are hypercorn's: it
sends every message by itself and has no heartbeat of its own (design.md section 4). The limits of a message are kept
where its frames come in, in ``hosting.py``, which also takes offers of compression away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import trio

from respserver.config import Limits
from respserver.errors import ApiError
from respserver.logger import get_logger
from respserver.message_socket import SocketClosed
from respserver.transport.head import error_body, refusal_fields
from respserver.transport.lifetime import (
    CLOSE_SECONDS,
    NO_CLOSE_FRAME,
    NOT_TEXT,
    UNSUPPORTED,
    Admit,
    Run,
    is_too_far_behind,
    run_to_close,
)

log = get_logger("respserver.transport")

T = TypeVar("T")

# Any: ASGI messages and scopes are open dictionaries; they become types here.
Message: TypeAlias = dict[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]


async def serve_asgi_websocket(
    scope: Message,
    receive: Receive,
    send: Send,
    *,
    limits: Limits,
    admit: Admit[T],
    run: Run[T],
) -> None:
    """Serve one ``websocket`` scope from its handshake to its end; ``admit`` and ``run`` as in ``serve_websocket``.

    The server must know the ``websocket.http.response`` extension, as hypercorn does.
    """
    await receive()  # websocket.connect
    headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
    admitted = admit(_target(scope), headers)
    if isinstance(admitted, ApiError):
        await _refuse(send, admitted)
        return
    await send({"type": "websocket.accept"})
    async with trio.open_nursery() as nursery:
        socket = AsgiSocket(receive, send, limits)
        nursery.start_soon(socket.write_pending)
        await run_to_close(run, socket, admitted)
        nursery.cancel_scope.cancel()


class AsgiSocket:
    """An accepted ASGI WebSocket as the session sees it (``message_socket.Socket``).

    ``write_pending`` must be running in a nursery: an ASGI send waits, a session's must not.
    """

    def __init__(self, receive: Receive, send: Send, limits: Limits) -> None:
        self._receive = receive
        self._send = send
        self._limits = limits
        self._queue: deque[bytes] = deque()
        self._pending = 0
        self._closed: SocketClosed | None = None
        self._reading = trio.CancelScope()
        self._writer = trio.lowlevel.ParkingLot()
        self._waiters = trio.lowlevel.ParkingLot()

    async def receive(self) -> str:
        """The next text message. A binary one closes with 1003."""
        message = None if self._closed else await self._receive_unless_closed()
        if message is None:
            pass
        elif message["type"] == "websocket.disconnect":
            code = message.get("code", NO_CLOSE_FRAME)
            self._end(SocketClosed(None if code == NO_CLOSE_FRAME else code, message.get("reason") or ""))
        elif message.get("text") is None:
            await self.close(UNSUPPORTED, NOT_TEXT)
        else:
            text: str = message["text"]
            return text
        assert self._closed is not None  # each way to get here has set it
        raise self._closed

    def send_many(self, messages: Sequence[bytes]) -> None:
        """Queue messages for the writer task. A peer that is too far behind is given up instead."""
        if self._closed is None and is_too_far_behind(self._pending, self._limits):
            log.info("connection_dropped", reason="too far behind")
            self._end(SocketClosed())
        if self._closed is not None:
            raise self._closed
        self._queue.extend(messages)
        self._pending += sum(map(len, messages))
        self._writer.unpark_all()

    async def drain(self) -> None:
        """Wait while more than the outbox's limit is pending."""
        while self._closed is None and self._pending > self._limits.outbox_bytes:
            await self._waiters.park()
        if self._closed is not None:
            raise self._closed

    async def close(self, code: int, reason: str = "") -> None:
        """Write what is pending and a close frame, in a few seconds at most."""
        if self._closed is not None:
            return
        self._closed = SocketClosed(code, reason)
        with trio.move_on_after(CLOSE_SECONDS):
            while self._pending:
                await self._waiters.park()
            await self._send({"type": "websocket.close", "code": code, "reason": reason})
        self._reading.cancel()  # whoever receives need not wait for a peer that never answers

    async def write_pending(self) -> None:
        """The writer task: sends what is queued, message by message, until cancelled."""
        while True:
            while not self._queue:
                await self._writer.park()
            message = self._queue.popleft()
            await self._send({"type": "websocket.send", "text": message.decode()})
            self._pending -= len(message)
            self._waiters.unpark_all()
            await trio.lowlevel.checkpoint()  # hypercorn's send waits for nothing once the peer is gone

    async def _receive_unless_closed(self) -> Message | None:
        with trio.CancelScope() as self._reading:
            return await self._receive()
        return None

    def _end(self, closed: SocketClosed) -> None:
        """The peer is gone: nothing that is pending can reach it."""
        self._closed = self._closed or closed
        self._pending -= sum(map(len, self._queue))
        self._queue.clear()
        self._waiters.unpark_all()
        self._reading.cancel()


async def _refuse(send: Send, error: ApiError) -> None:
    headers = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in refusal_fields(error).items()]
    await send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
    await send({"type": "websocket.http.response.body", "body": error_body(error), "more_body": False})


def _target(scope: Message) -> str:
    path: str = scope["raw_path"].decode("latin-1")
    query: str = scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path
