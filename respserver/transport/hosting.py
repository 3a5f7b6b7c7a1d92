"""Hypercorn as the HTTP/1.1 machine of one connection: the only importer of its internals.

``TCPServer`` and its context classes are not a documented API; the minor version is pinned, and a contract test fails
loudly when they change. Whatever they raise ends one connection only.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator
from typing import Any

import trio
from hypercorn.config import Config as HypercornConfig
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState
from hypercorn.utils import wrap_app

from respserver.config import Limits
from respserver.logger import get_logger
from respserver.transport.lifespan import AsgiApp, lifespan
from respserver.transport.outbox import Data, Outbox

log = get_logger("respserver.transport")

KEEP_ALIVE_SECONDS = 75.0
"""Longer than the pools of common clients keep a connection, so that they close first and never lose a request."""
MANY_REQUESTS = 1 << 62
"""Hypercorn closes a connection after a number of requests; there is no reason to."""


class HttpHost:
    """Serves an ASGI app over HTTP/1.1, one connection at a time given by an ``Outbox``."""

    def __init__(self, app: AsgiApp, limits: Limits) -> None:
        self._app = app
        self._wrapped = wrap_app(app, limits.message_bytes, "asgi")
        self._config = _hypercorn_config(limits)
        self._state: dict[str, Any] = {}  # Any: whatever the app's lifespan puts there
        self._open: set[WorkerContext] = set()
        self._stopped = False

    @contextlib.asynccontextmanager
    async def started(self) -> AsyncIterator[None]:
        """Run the app's start-up hooks before the block and its shutdown hooks after it.

        Raises ``LifespanFailed`` (in an exception group) if a start-up hook fails.
        """
        async with lifespan(self._app, self._state):
            yield

    async def stop(self) -> None:
        """Close connections that wait for a next request, now and from now on; requests that run go on."""
        self._stopped = True
        for context in self._open:
            await context.terminated.set()

    async def serve(self, outbox: Outbox) -> None:
        """Serve the requests of one connection until it ends. Faults of the protocol machine end it and are logged."""
        context = WorkerContext(None)
        self._open.add(context)
        try:
            if self._stopped:
                await context.terminated.set()
            async with trio.open_nursery() as nursery:
                view = TlsView(outbox) if outbox.is_tls else View(outbox)
                nursery.start_soon(_end_with, outbox, context)
                nursery.start_soon(_close_with, view, outbox)
                await self._serve(view, context)
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            log.debug("connection_dropped", reason="the peer is gone")
        except* Exception as faults:  # noqa: BLE001 - a client can make hypercorn raise; that ends its connection only
            log.warning("http_fault", error=repr(faults.exceptions))
        finally:
            self._open.discard(context)

    async def _serve(self, view: View, context: WorkerContext) -> None:
        stream: Any = view  # Any: annotated as a TLS stream, used as whatever has these few methods
        await TCPServer(self._wrapped, self._config, context, ConnectionState(self._state.copy()), stream).run()


async def _end_with(outbox: Outbox, context: WorkerContext) -> None:
    """End hypercorn's idle timer with its connection; by itself it goes on for the whole keep-alive time."""
    await outbox.wait_ended()
    await context.terminated.set()


async def _close_with(view: View, outbox: Outbox) -> None:
    """Close the connection when hypercorn means to. It does so in the request's own task, which quart-trio cancels as
    soon as the answer is written: the client of a last answer would wait for an end that does not come."""
    await view.ending.wait()
    await outbox.aclose()


class View:
    """The outbox as hypercorn sees it. ``ending`` is set when hypercorn begins to close the connection."""

    def __init__(self, outbox: Outbox) -> None:
        self.ending = trio.Event()
        self._outbox = outbox

    def __getattr__(self, name: str) -> trio.socket.SocketType:
        # Hypercorn tells TLS from plain connections by what a stream lacks, so that ``TlsView`` must not have it.
        if name == "socket" and not self._outbox.is_tls:
            return self._outbox.socket
        raise AttributeError(name)

    async def send_all(self, data: Data) -> None:
        """Write, and wait for a slow reader."""
        await self._outbox.send_all(data)

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Bytes from the peer."""
        return await self._outbox.receive_some(max_bytes)

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
