"""The server: opens the port, joins the parts, and shuts down in order.

Order of a shutdown: no new connections → idle sockets close with 1001, waiting creates are refused → running turns get
the grace time, then end with a terminal event → what is still open is cut → bookkeeping is finished → store and engine
are closed. The whole takes at most the grace time and a second.
"""

from __future__ import annotations

import gc
import ssl
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import parse_qs, urlsplit

import msgspec
import trio

from respserver.auth import KeyRing
from respserver.config import Config, check
from respserver.errors import ApiError, OriginNotAllowed, RouteNotFound, ShuttingDown, WebSocketDisabled
from respserver.logger import get_logger
from respserver.message_socket import Socket
from respserver.services import build_services
from respserver.session import Session
from respserver.settings import key_lines
from respserver.transport.app import RESPONSES_PATHS, make_app
from respserver.transport.head import Head
from respserver.transport.hosting import HttpHost
from respserver.transport.http import HttpTurns
from respserver.transport.listener import serve_connections
from respserver.transport.outbox import Outbox
from respserver.transport.websocket import serve_websocket
from respserver.turn.services import Services

log = get_logger("respserver.server")

LAST_SECOND = 1.0
"""What a shutdown may take beyond the grace time."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens."""

    host: str
    port: int
    tls: bool = False

    @property
    def base_url(self) -> str:
        """What clients call ``base_url``."""
        return f"{'https' if self.tls else 'http'}://{self._netloc}/v1"

    @property
    def ws_url(self) -> str:
        """The WebSocket endpoint."""
        return f"{'wss' if self.tls else 'ws'}://{self._netloc}/v1/responses"

    @property
    def _netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Admitted(msgspec.Struct, frozen=True, kw_only=True):
    """What the upgrade request told."""

    tenant: str
    default_model: str | None


class Server:
    """One listening server around shared services. ``serve`` runs it until ``stop`` is set.

    Raises ``ConfigError`` for settings that do not fit together.
    """

    def __init__(self, config: Config, services: Services, keys: KeyRing) -> None:
        check(config)
        self.services = services
        self.stop = trio.Event()
        self._config = config
        self._keys = keys

    async def serve(self, on_ready: Callable[[Address], None]) -> None:
        """Listen until ``stop`` is set, then shut down in order. Raises ``OSError`` if the port cannot be had."""
        listeners = await trio.open_tcp_listeners(self._config.port, host=self._config.host)
        address = _address_of(listeners[0], self._config)
        try:
            async with trio.open_nursery() as background:
                background.start_soon(self.services.post.run)
                turns = HttpTurns(self.services, background)
                host = HttpHost(make_app(self.services, turns, self._keys), self._config.limits)
                async with host.started():
                    await self._serve(listeners, host, turns, lambda: on_ready(address))
                self.services.post.close()
        finally:
            await self._close()

    async def _serve(
        self, listeners: Sequence[trio.SocketListener], host: HttpHost, turns: HttpTurns, ready: Callable[[], None]
    ) -> None:
        grace = self._config.limits.grace_seconds
        async with trio.open_nursery() as accepting, trio.open_nursery() as connections:
            await accepting.start(
                partial(
                    serve_connections,
                    listeners,
                    http=host.serve,
                    websocket=self._serve_websocket,
                    limits=self._config.limits,
                    connections=connections,
                    tls_context=_tls_context(self._config),
                )
            )
            ready()
            await self.stop.wait()
            log.info("shutting_down", grace_seconds=grace)
            accepting.cancel_scope.cancel()
            connections.cancel_scope.deadline = trio.current_time() + grace + LAST_SECOND
            connections.start_soon(self._end_http, host, turns, grace)
        log.info("stopped")

    async def _end_http(self, host: HttpHost, turns: HttpTurns, grace: float) -> None:
        await host.stop()
        await turns.shut_down(ShuttingDown(), grace)

    async def _serve_websocket(self, outbox: Outbox, head: Head) -> None:
        await serve_websocket(outbox, head, limits=self._config.limits, admit=self._admit, run=self._run_session)

    def _admit(self, target: str, headers: list[tuple[str, str]]) -> Admitted | ApiError:
        """Decide on an upgrade before it is answered (protocol.md section 1.2)."""
        url = urlsplit(target)
        try:
            if url.path.rstrip("/") not in RESPONSES_PATHS:
                raise RouteNotFound("GET", url.path)
            if not self._config.websocket:
                raise WebSocketDisabled
            if self.stop.is_set():
                raise ShuttingDown
            _check_origin(headers, self._config.allow_origin)
            tenant = self._keys.authenticate(_header(headers, "authorization"))
        except ApiError as error:
            return error
        return Admitted(tenant=tenant, default_model=parse_qs(url.query).get("model", [None])[0])

    async def _run_session(self, socket: Socket, admitted: Admitted) -> None:
        session = Session(
            socket,
            self.services,
            tenant=admitted.tenant,
            stop=self.stop,
            default_model=admitted.default_model,
        )
        await session.run()

    async def _close(self) -> None:
        with trio.CancelScope(shield=True) as scope:
            scope.deadline = trio.current_time() + self._config.limits.end_seconds
            await self.services.store.aclose()
            for engine in {id(route.engine): route.engine for route in self.services.router.routes}.values():
                await engine.aclose()


async def serve(
    config: Config, *, on_ready: Callable[[Address], None] = lambda _: None, stop: trio.Event | None = None
) -> None:
    """Run a server from its settings until ``stop`` is set; returns after an orderly shutdown.

    ``on_ready`` is called once connections are accepted. Raises ``ConfigError`` and ``OSError``.
    """
    server = Server(config, build_services(config), KeyRing.from_config(config, key_lines(config)))
    if stop is not None:
        server.stop = stop
    gc.freeze()  # nothing that exists by now goes away: full collections need not look at it (stack.md section 7)
    await server.serve(on_ready)


def _address_of(listener: trio.SocketListener, config: Config) -> Address:
    port: int = listener.socket.getsockname()[1]
    return Address(host=config.host, port=port, tls=config.certfile is not None)


def _tls_context(config: Config) -> ssl.SSLContext | None:
    if config.certfile is None or config.keyfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(config.certfile, config.keyfile)
    return context


def _check_origin(headers: list[tuple[str, str]], allowed: tuple[str, ...]) -> None:
    """Browsers send ``Origin``, other clients do not: a foreign page must not use a local server (F25)."""
    origin = _header(headers, "origin")
    if origin is None or origin in allowed:
        return
    if urlsplit(origin).netloc != _header(headers, "host"):
        raise OriginNotAllowed(f"Origin '{origin}' is not allowed.")


def _header(headers: list[tuple[str, str]], name: str) -> str | None:
    return next((value for key, value in headers if key == name), None)
