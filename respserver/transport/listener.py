"""One port, three protocols: accept, TLS, the first request head, and who serves the connection.

A WebSocket upgrade goes one way, everything else the other, both over the connection's ``Outbox`` with the head
replayed. Whatever happens to a connection stays with it: nothing raised here can end the server (field case F37).
"""

from __future__ import annotations

import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

import trio

from respserver.config import Limits
from respserver.logger import get_logger
from respserver.transport.head import Head, HeadReader, HeadTooLarge, answer
from respserver.transport.outbox import RECEIVE_BYTES, Outbox

log = get_logger("respserver.transport")

HttpHandler: TypeAlias = Callable[[Outbox], Awaitable[None]]
"""Serves a connection whose first request is not an upgrade; the outbox begins with that request."""
WebSocketHandler: TypeAlias = Callable[[Outbox, Head], Awaitable[None]]
"""Serves an upgrade; the outbox begins behind the head."""

ALPN = ["http/1.1"]


async def serve_connections(
    listeners: Sequence[trio.SocketListener],
    *,
    http: HttpHandler,
    websocket: WebSocketHandler,
    limits: Limits,
    connections: trio.Nursery,
    tls_context: ssl.SSLContext | None = None,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept until cancelled; then the listeners are closed at once and open connections go on in ``connections``.

    Connections whose first request head is not complete by then have nothing to go on with: they are closed, too.
    ``http`` and ``websocket`` serve a connection each; when they return, the connection is closed in order.
    """
    newcomers = Newcomers(limits)
    if tls_context is not None:
        tls_context.set_alpn_protocols(ALPN)

    async def serve(stream: trio.SocketStream) -> None:
        try:
            await _serve_connection(stream, tls_context, http, websocket, limits, newcomers)
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            log.debug("connection_dropped", reason="the peer is gone")
        except* Exception as faults:
            log.exception("connection_fault", exc_info=faults)

    try:
        await trio.serve_listeners(serve, list(listeners), handler_nursery=connections, task_status=task_status)
    finally:
        newcomers.dismiss()


async def _serve_connection(
    tcp: trio.SocketStream,
    tls_context: ssl.SSLContext | None,
    http: HttpHandler,
    websocket: WebSocketHandler,
    limits: Limits,
    newcomers: Newcomers,
) -> None:
    outbox = Outbox(
        tcp if tls_context is None else trio.SSLStream(tcp, tls_context, server_side=True),
        limit_bytes=limits.outbox_bytes,
        write_seconds=limits.write_seconds,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(outbox.run)
        try:
            head = await newcomers.first_head(outbox)
            if head is not None and head.upgrades:
                outbox.prepend(head.rest)
                await websocket(outbox, head)
            elif head is not None:
                outbox.prepend(head.raw + head.rest)
                await http(outbox)
        finally:
            await outbox.aclose()


class Newcomers:
    """The connections whose first request head is not complete. Each has ``handshake_seconds`` for it."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._scopes: set[trio.CancelScope] = set()
        self._dismissed = False

    def dismiss(self) -> None:
        """Let them go, now and from now on."""
        self._dismissed = True
        for scope in self._scopes:
            scope.cancel()

    async def first_head(self, outbox: Outbox) -> Head | None:
        """The first request's head; None if there is nobody to serve. A head over its limit is answered here."""
        with trio.move_on_after(self._limits.handshake_seconds) as scope:
            if self._dismissed:
                scope.cancel()
            self._scopes.add(scope)
            try:
                await outbox.handshake()
                return await _read_head(outbox, self._limits.head_bytes)
            except HeadTooLarge as error:
                outbox.write(answer(error))
            except trio.BrokenResourceError as error:  # also what a failed TLS handshake is
                log.debug("connection_dropped", reason=str(error.__cause__ or error))
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            log.debug("connection_dropped", reason="shutting down" if self._dismissed else "no request head in time")
        return None


async def _read_head(outbox: Outbox, limit: int) -> Head | None:
    reader = HeadReader(limit)
    while True:
        data = await outbox.receive_some(RECEIVE_BYTES)
        if not data:
            return None
        head = reader.feed(data)
        if head is not None:
            return head
