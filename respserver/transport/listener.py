"""One port, three protocols: accept, TLS, the first request head, and who serves the connection.

A WebSocket upgrade goes one way, everything else the other, both over the connection's ``Outbox`` with the head
replayed. So many connections may be open; what comes beyond is refused after its head, whatever it asks for. Whatever
happens to a connection stays with it: nothing raised here can end the server (field case F37).
"""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

import trio

from respserver.config import Limits
from respserver.errors import RETRY_SOON, ServerError
from respserver.logger import get_logger
from respserver.metrics import Metrics
from respserver.transport.head import Head, HeadReader, HeadTooLarge, answer
from respserver.transport.outbox import RECEIVE_BYTES, Outbox
from respserver.transport.refusals import log_refusal

log = get_logger("respserver.transport")

HttpHandler: TypeAlias = Callable[[Outbox], Awaitable[None]]
"""Serves a connection whose first request is not an upgrade; the outbox begins with that request."""
WebSocketHandler: TypeAlias = Callable[[Outbox, Head], Awaitable[None]]
"""Serves an upgrade; the outbox begins behind the head."""

ALPN = ["http/1.1"]

REFUSED_AT_ONCE = 32
REFUSAL_SECONDS = 2.0
"""A flood must not hold sockets: so many connections beyond the limit are told why, and for so long; more are closed
without a word."""
WARNING_SECONDS = 60.0
"""Between two warnings in the log that connections are being refused."""


class TooManyConnections(ServerError):
    """As many connections are open as may be; this one is answered and closed."""

    status = 503
    code = "too_many_connections"
    hints = RETRY_SOON

    def __init__(self, limit: int) -> None:
        super().__init__(f"This server has {limit} connections open, and no more may be. Please try again later.")


async def serve_connections(
    listeners: Sequence[trio.SocketListener],
    *,
    http: HttpHandler,
    websocket: WebSocketHandler,
    limits: Limits,
    connections: trio.Nursery,
    metrics: Metrics | None = None,
    tls_context: ssl.SSLContext | None = None,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Accept until cancelled; then the listeners are closed at once and open connections go on in ``connections``.

    Connections whose first request head is not complete by then have nothing to go on with: they are closed, too.
    ``http`` and ``websocket`` serve a connection each; when they return, the connection is closed in order.
    Beyond ``limits.connections`` the first request is answered with 503; ``metrics`` counts those.
    """
    newcomers = Newcomers(limits)
    room = Room(limits.connections, metrics or Metrics())
    if tls_context is not None:
        tls_context.set_alpn_protocols(ALPN)

    async def serve(stream: trio.SocketStream) -> None:
        try:
            if room.is_left:
                with room.taken():
                    await _serve_connection(stream, tls_context, http, websocket, limits, newcomers)
            elif room.turn_away():
                with room.refusing():
                    await _serve_connection(stream, tls_context, room.refuse, room.refuse, limits, newcomers)
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


class Room:
    """How many connections are open, of ``limit``, and how many more are just being refused; 0 is no limit."""

    def __init__(self, limit: int, metrics: Metrics) -> None:
        self._limit = limit
        self._metrics = metrics
        self._open = 0
        self._refusing = 0
        self._warn_at = trio.current_time()

    @property
    def is_left(self) -> bool:
        """Whether one more connection may be open."""
        return not self._limit or self._open < self._limit

    def turn_away(self) -> bool:
        """Count a connection that is one too many; whether it may be told so."""
        self._metrics.connections_refused += 1
        now = trio.current_time()
        if now >= self._warn_at:
            self._warn_at = now + WARNING_SECONDS
            log.warning("connections_refused", limit=self._limit, refused=self._metrics.connections_refused)
        return self._refusing < REFUSED_AT_ONCE

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """For as long as a connection is open."""
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1

    @contextlib.contextmanager
    def refusing(self) -> Iterator[None]:
        """For as long as a connection is being refused, which ends in time."""
        self._refusing += 1
        try:
            with trio.move_on_after(REFUSAL_SECONDS):
                yield
        finally:
            self._refusing -= 1

    async def refuse(self, outbox: Outbox, _: Head | None = None) -> None:
        """Answer a first request in place of whoever would serve it."""
        await outbox.send_all(answer(TooManyConnections(self._limit)))


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
                log_refusal(error)
                outbox.write(answer(error))
            except trio.BrokenResourceError as error:
                _log_broken(error)
            finally:
                self._scopes.discard(scope)
        if scope.cancelled_caught:
            log.debug("connection_dropped", reason="shutting down" if self._dismissed else "no request head in time")
        return None


def _log_broken(error: trio.BrokenResourceError) -> None:
    """A connection that broke before its first request was in; a failed TLS handshake is such a one."""
    cause = error.__cause__
    if isinstance(cause, ssl.SSLError):
        plain = cause.reason == "HTTP_REQUEST"
        log.info("tls_failed", reason="plain HTTP came to a TLS port" if plain else cause.reason or str(cause))
    else:
        log.debug("connection_dropped", reason=str(cause or error))


async def _read_head(outbox: Outbox, limit: int) -> Head | None:
    reader = HeadReader(limit)
    while True:
        data = await outbox.receive_some(RECEIVE_BYTES)
        if not data:
            return None
        head = reader.feed(data)
        if head is not None:
            return head
