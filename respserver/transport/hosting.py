"""Hypercorn as the HTTP/1.1 machine of one connection: the only importer of its internals.

``TCPServer``, its protocol and its context classes are not a documented API; the minor version is pinned, and a
contract test fails loudly when they change. Whatever they raise ends one connection only. HTTP/2, which hypercorn would
change to when asked, is not spoken here.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import h11
import trio
from hypercorn import events as raw
from hypercorn.config import Config as HypercornConfig
from hypercorn.protocol.events import Event, Response
from hypercorn.protocol.h11 import H11Protocol, H11WSConnection
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app
from wsproto.events import CloseConnection
from wsproto.utilities import LocalProtocolError

from respserver.config import Limits
from respserver.errors import ApiError, InvalidRequest, ShuttingDown
from respserver.logger import get_logger
from respserver.transport.frame_meter import FrameMeter
from respserver.transport.head import HeadTooLarge, answer, check_handshake, is_upgrade, origin_form
from respserver.transport.keep_alive import BodyTooSlow, Requests
from respserver.transport.lifespan import AsgiApp, lifespan
from respserver.transport.lifetime import CLOSE_SECONDS, TOO_BIG
from respserver.transport.outbox import Data, Outbox
from respserver.transport.refusals import log_refusal

log = get_logger("respserver.transport")

KEEP_ALIVE_SECONDS = 75.0
"""Longer than the pools of common clients keep a connection, so that they close first and never lose a request."""
MESSAGE_SOCKET_BYTES = 4 << 10
"""Read at once behind an upgrade: hypercorn lets no other task run before it is through all frames of one read."""
LAST = (b"connection", b"close")
EXTENSIONS = b"sec-websocket-extensions"
MANY_REQUESTS = 1 << 62
"""Hypercorn closes a connection after a number of requests; there is no reason to."""


class HttpHost:
    """Serves an ASGI app over HTTP/1.1, one connection at a time given by an ``Outbox``.

    A connection that carries no request is closed after ``keep_alive_seconds``.
    """

    def __init__(self, app: AsgiApp, limits: Limits, *, keep_alive_seconds: float = KEEP_ALIVE_SECONDS) -> None:
        self._app = app
        self._limits = limits
        self._keep_alive_seconds = keep_alive_seconds
        self._config = _hypercorn_config(limits)
        self._state: dict[str, Any] = {}  # Any: whatever the app's lifespan puts there
        self._open: dict[Requests, WorkerContext] = {}
        self._stopped = False

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """Run the app's start-up hooks before the block and its shutdown hooks after it.

        Raises ``LifespanFailed`` (in an exception group) if a start-up hook fails.
        """
        async with lifespan(self._app, self._state):
            yield

    async def stop(self) -> None:
        """Take no more requests, now and from now on. A connection is closed at once, or after the answer of the
        request that runs; a request that is not complete yet gets 503 instead of time."""
        self._stopped = True
        for requests, context in list(self._open.items()):
            requests.stop()
            await context.terminated.set()  # so that hypercorn begins no other after the one that runs

    async def serve(self, outbox: Outbox) -> None:
        """Serve the requests of one connection until it ends. Faults of the protocol machine end it and are logged."""
        requests = Requests(self._app, self._keep_alive_seconds)
        context = WorkerContext(None)
        self._open[requests] = context
        try:
            if self._stopped:
                outbox.write(answer(ShuttingDown()))
                return
            async with trio.open_nursery() as nursery:
                view = TlsView(outbox) if outbox.is_tls else View(outbox)
                nursery.start_soon(self._serve, view, context, requests)
                nursery.start_soon(self._close_when_over, view, outbox, requests)
                await outbox.wait_ended()
                await context.terminated.set()  # hypercorn has read ahead, and would begin the next request
                await requests.wait_none_open()
                await outbox.aclose()
                nursery.cancel_scope.cancel()  # hypercorn may wait for a next request that can't come
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            log.debug("connection_dropped", reason="the peer is gone")
        except* Exception as faults:  # noqa: BLE001 - a client can make hypercorn raise; that ends its connection only
            log.warning("http_fault", error=repr(faults.exceptions))
        finally:
            del self._open[requests]

    async def _serve(self, view: View, context: WorkerContext, requests: Requests) -> None:
        stream: Any = view  # Any: annotated as a TLS stream, used as whatever has these few methods
        app: AsgiApp = requests
        wrapped = wrap_app(app, self._limits.message_bytes, "asgi")
        await Http1Server(wrapped, self._config, context, ConnectionState(self._state.copy()), stream).run()

    async def _close_when_over(self, view: View, outbox: Outbox, requests: Requests) -> None:
        """Close the connection when we or hypercorn mean to.

        Hypercorn does so in the request's own task, which quart-trio cancels as soon as the answer is written: the
        client of a last answer would wait for an end that does not come.
        """
        await _first_of(view.ending.wait, requests.wait_over)
        if requests.are_arriving and not view.ending.is_set():
            error = ShuttingDown() if self._stopped else BodyTooSlow()
            log_refusal(error)
            view.end_with(answer(error))
        await outbox.aclose()


async def _first_of(*waits: Callable[[], Awaitable[None]]) -> None:
    async def wait_one(wait: Callable[[], Awaitable[None]]) -> None:
        await wait()
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        for wait in waits:
            nursery.start_soon(wait_one, wait)


class View:
    """The outbox as hypercorn sees it. ``ending`` is set when hypercorn begins to close the connection."""

    def __init__(self, outbox: Outbox) -> None:
        self.ending = trio.Event()
        self.most_bytes: int | None = None
        """Of one read, if it is less than what is asked for."""
        self._outbox = outbox
        self._said_last = False

    def __getattr__(self, name: str) -> trio.socket.SocketType:
        # Hypercorn tells TLS from plain connections by what a stream lacks, so that ``TlsView`` must not have it.
        if name == "socket" and not self._outbox.is_tls:
            return self._outbox.socket
        raise AttributeError(name)

    def end_with(self, last_word: Data) -> None:
        """Write without waiting, once, and drop whatever hypercorn may have begun to write meanwhile."""
        if self._said_last:
            return
        self._said_last = True
        with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            self._outbox.write(last_word)

    async def send_all(self, data: Data) -> None:
        """Write, and wait for a slow reader."""
        if self._said_last:
            await trio.lowlevel.checkpoint()
        else:
            await self._outbox.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Bytes from the peer."""
        return await self._outbox.receive_some(self.most_bytes or max_bytes)

    async def send_eof(self) -> None:
        """Write what is pending and end our side: the first step of hypercorn's close."""
        self.ending.set()
        await self._outbox.send_eof()

    async def aclose(self) -> None:
        """Close in order."""
        self.ending.set()
        await self._outbox.aclose()


class TlsView(View):
    """The same, with what hypercorn asks of a TLS stream; the handshake is already done."""

    @property
    def transport_stream(self) -> Outbox:
        """Hypercorn takes the addresses from its ``socket``."""
        return self._outbox

    async def do_handshake(self) -> None:
        """Nothing is left to do."""
        await trio.lowlevel.checkpoint()

    def selected_alpn_protocol(self) -> str:
        """Always HTTP/1.1, the only one offered."""
        return "http/1.1"


class Http1(H11Protocol):
    """Hypercorn's HTTP/1.1 with its offers of HTTP/2 taken away, refusals that say why, and messages that end."""

    def __init__(self, view: View, *arguments: Any) -> None:  # Any: handed on as they are
        super().__init__(*arguments)
        self.view = view
        self._answered = trio.Event()
        self._meter: FrameMeter | None = None

    async def handle(self, event: raw.Event) -> None:
        """Take what comes in. Of a WebSocket's messages only those within the limits reach hypercorn."""
        if isinstance(event, raw.RawData) and self._meter is not None and isinstance(self.stream, WSStream):
            self._meter.follow(event.data)
            if self._meter.excess:
                await self._close_with_1009(self.stream, self._meter.excess)
                return
        await super().handle(event)

    async def _close_with_1009(self, stream: WSStream, reason: str) -> None:
        """End a WebSocket after a message over a limit, and its session with it.

        Hypercorn alone would write a close frame, tell nobody, and read and keep whatever still comes.
        """
        with contextlib.suppress(LocalProtocolError):  # a close frame was written before
            self.view.end_with(stream.connection.send(CloseConnection(code=TOO_BIG, reason=reason)))
        assert stream.app_put is not None  # what was accepted has an app
        told = {"type": "websocket.disconnect", "code": TOO_BIG, "reason": reason}
        with trio.move_on_after(CLOSE_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.view.aclose)
                nursery.start_soon(stream.app_put, told)

    async def stream_send(self, event: Event) -> None:
        """Pass on what a request's stream writes.

        An answer that does not wait for the body (404, 405, 401) says that the connection ends with it: hypercorn
        closes it then, and a client that was not told would lose its next request.
        """
        if isinstance(event, Response) and self.connection.their_state is h11.SEND_BODY:
            others = [pair for pair in event.headers if pair != LAST]  # a server that stops says so, too
            event = Response(event.stream_id, headers=[*others, LAST], status_code=event.status_code)
        await super().stream_send(event)
        if isinstance(event, Response):
            self._answered.set()

    async def _check_protocol(self, event: h11.Request) -> None:
        """Hypercorn looks for HTTP/2 here. An ``Upgrade: h2c`` is ignored, as RFC 9110 section 7.8 has it."""

    async def _create_stream(self, request: h11.Request) -> None:
        try:
            _check(request, self.config.h11_max_incomplete_size)
        except ApiError as error:
            self._refuse(error, request)
            await self.send(raw.Closed())
            return
        self._answered = trio.Event()
        await super()._create_stream(_plain(request))
        if isinstance(self.connection, H11WSConnection):
            await self._finish_upgrade(self.connection)

    async def _finish_upgrade(self, connection: H11WSConnection) -> None:
        """Leave what comes behind an upgrade unread until it is answered; after a refusal nothing more is read."""
        await self._answered.wait()
        stream, self.stream = self.stream, None
        if not isinstance(stream, WSStream):
            return
        if stream.handshake.accepted:
            self.stream = stream
            self.view.most_bytes = MESSAGE_SOCKET_BYTES
            self._meter = FrameMeter(self.config.websocket_max_message_size)
            behind, connection.buffer = connection.buffer, bytearray()
            await self.handle(raw.RawData(bytes(behind)))
        elif stream.closed:  # not even a handshake in hypercorn's eyes: no app ends this connection
            await self.send(raw.Closed())

    async def _send_error_response(self, status_code: int) -> None:
        """Hypercorn's own answers, to what is no request."""
        if status_code == HeadTooLarge.status:
            self._refuse(HeadTooLarge(self.config.h11_max_incomplete_size))
        else:
            self._refuse(InvalidRequest("The request is not valid HTTP/1.1.", status=status_code))

    def _refuse(self, error: ApiError, request: h11.Request | None = None) -> None:
        known = () if request is None else (request.method.decode("ascii"), request.target.decode("ascii"))
        log_refusal(error, *known)
        self.view.end_with(answer(error))
        self.view.ending.set()


class Http1Server(TCPServer):
    """Hypercorn's connection with ``Http1`` as its only protocol."""

    async def _read_data(self) -> None:
        """The first thing that ``run`` does with a protocol that it has made."""
        made = self.protocol
        view: Any = self.stream  # Any: annotated as a TLS stream; ``HttpHost`` has made it a view
        made.protocol = Http1(
            view,
            made.app,
            made.config,
            made.context,
            made.task_group,
            made.state,
            made.ssl,
            made.client,
            made.server,
            made.send,
        )
        await super()._read_data()


def _check(request: h11.Request, head_bytes: int) -> None:
    """Raises for what no app should see; h11 looks at the size of a head only while it is incomplete."""
    if not request.http_version.startswith(b"1."):
        raise InvalidRequest("Only HTTP/1.1 is served.", status=505)
    if len(request.target) + sum(len(name) + len(value) for name, value in request.headers) > head_bytes:
        raise HeadTooLarge(head_bytes)
    if request.method == b"GET":
        headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in request.headers]
        if is_upgrade(request, headers):
            check_handshake(headers)


def _plain(request: h11.Request) -> h11.Request:
    """What hypercorn and Quart can be trusted with: a target that is a path, and no offers of WebSocket extensions.

    Quart raises on some targets that name no path. Hypercorn accepts permessage-deflate, and inflates a message before
    it looks at its size: 200 KB would become 200 MB.
    """
    offers = any(name == EXTENSIONS for name, _ in request.headers)
    if request.target.startswith(b"/") and not offers:
        return request
    return h11.Request(
        method=request.method,
        target=origin_form(request.target.decode("ascii")),
        headers=[(name, value) for name, value in request.headers.raw_items() if name.lower() != EXTENSIONS],
        http_version=request.http_version,
    )


def _hypercorn_config(limits: Limits) -> HypercornConfig:
    config = HypercornConfig()
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.keep_alive_max_requests = MANY_REQUESTS
    config.read_timeout = None
    config.h11_max_incomplete_size = limits.head_bytes
    config.alpn_protocols = ["http/1.1"]
    config.include_server_header = False
    config.websocket_max_message_size = limits.message_bytes
    config.websocket_ping_interval = None
    config.errorlog = logging.getLogger("hypercorn.error")  # by name it would put a handler of its own there
    return config
