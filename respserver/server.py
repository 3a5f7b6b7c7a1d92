"""The server: opens the port, joins the parts, and shuts down in order.

Order of a shutdown: no new connections → idle sockets close with 1001, waiting creates are refused → running turns get
the grace time, then end with a terminal event → what is still open is cut → bookkeeping is finished → store and engine
are closed. The whole takes at most the grace time and a second.
"""

from __future__ import annotations

import gc
import ipaddress
import ssl
from collections.abc import Callable
from functools import partial

import msgspec
import trio

from respserver.auth import KeyRing
from respserver.config import Config, check, differences, take_anew
from respserver.errors import ConfigError, ShuttingDown
from respserver.logger import get_logger
from respserver.message_socket import Socket
from respserver.services import build_services, make_routes
from respserver.session import Session
from respserver.settings import key_lines
from respserver.transport.admission import Admission, Admitted
from respserver.transport.app import make_app
from respserver.transport.asgi_socket import Message, Receive, Send, serve_asgi_websocket
from respserver.transport.head import Head
from respserver.transport.hosting import HttpHost
from respserver.transport.http import HttpTurns
from respserver.transport.lifespan import AsgiApp
from respserver.transport.listener import serve_connections
from respserver.transport.outbox import Outbox
from respserver.transport.websocket import serve_websocket
from respserver.turn.services import Services

log = get_logger("respserver.server")

LAST_SECOND = 1.0
"""What a shutdown may take beyond the grace time."""


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server listens; the URLs are for clients on the same machine."""

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
    def is_everywhere(self) -> bool:
        """Whether the host stands for all addresses of the machine (``0.0.0.0``, ``::``): no client can call that."""
        try:
            return ipaddress.ip_address(self.host).is_unspecified
        except ValueError:
            return False

    @property
    def _netloc(self) -> str:
        host = self.host
        if self.is_everywhere:
            host = "::1" if ":" in host else "127.0.0.1"
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"


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
        self._admission = Admission(config, keys, lambda: self.stop.is_set())

    async def serve(self, on_ready: Callable[[Address], None]) -> None:
        """Listen until ``stop`` is set, then shut down in order. Raises ``OSError`` if the port cannot be had."""
        listeners = await _open_listeners(self._config)
        address = _address_of(listeners[0], self._config)
        try:
            async with trio.open_nursery() as background:
                background.start_soon(self.services.post.run)
                turns = HttpTurns(self.services, background)
                app = make_app(self.services, turns, self._keys)
                host = HttpHost(self._with_late_upgrades(app), self._config.limits)
                async with host.started():
                    await self._serve_until_stop(listeners, host, lambda: on_ready(address), turns)
                self.services.post.close()
        finally:
            await self._close()

    def reload(self, fresh: Config) -> None:
        """Take the routing table, the API keys (the keys file's lines included) and the rate limits of ``fresh``; all
        else stays.

        Running turns keep their route, and open sockets their tenant; what begins from now on finds the new table and
        the new keys. Settings that differ and would need a restart are logged by name. May be called from any thread.
        Raises ``ConfigError``, and then nothing has changed.
        """
        config = take_anew(self._config, fresh)
        check(config)
        keys = KeyRing.from_config(config, key_lines(config))
        if keys.is_open and not self._keys.is_open:
            raise ConfigError("api_key", "no keys are left; only a restart opens a server that has asked for keys")
        routes = make_routes(config, self.services.router.engines)
        # Nothing fails from here on.
        self._keys.replace(keys)
        self.services.router.replace(routes)
        self.services.rates.replace(config.limits)
        self._config = self.services.config = config
        log.info("reloaded", routes=len(routes))
        if left := differences(config, fresh):
            log.warning("restart_needed", settings=left)

    async def _serve_until_stop(
        self, listeners: list[trio.SocketListener], host: HttpHost, ready: Callable[[], None], turns: HttpTurns
    ) -> None:
        grace = self._config.limits.grace_seconds
        async with trio.open_nursery() as connections:
            async with trio.open_nursery() as accepting:
                await accepting.start(
                    partial(
                        serve_connections,
                        listeners,
                        http=host.serve,
                        websocket=self._serve_websocket,
                        limits=self._config.limits,
                        connections=connections,
                        metrics=self.services.metrics,
                        tls_context=_tls_context(self._config),
                    )
                )
                ready()
                await self.stop.wait()
                accepting.cancel_scope.cancel()
            log.debug("shutting_down", grace_seconds=grace)
            connections.cancel_scope.deadline = trio.current_time() + grace + LAST_SECOND
            await host.stop()
            await turns.shut_down(ShuttingDown(), grace)
        log.info("stopped")

    async def _serve_websocket(self, outbox: Outbox, head: Head) -> None:
        limits, admit = self._config.limits, self._admission.admit
        await serve_websocket(outbox, head, limits=limits, admit=admit, run=self._run_session)

    def _with_late_upgrades(self, app: AsgiApp) -> AsgiApp:
        """The app, with upgrades that come behind earlier requests served by the same session."""
        limits, admit = self._config.limits, self._admission.admit_late

        async def serve(scope: Message, receive: Receive, send: Send) -> None:
            if scope["type"] == "websocket":
                await serve_asgi_websocket(scope, receive, send, limits=limits, admit=admit, run=self._run_session)
            else:
                await app(scope, receive, send)

        return serve

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
            await self.services.screening.aclose()
            self.services.kept.clear()
            await self.services.post.runs.finish()
            for host in self.services.hosts.values():
                await host.aclose()
            for engine in self.services.router.engines:
                await engine.aclose()


async def serve(
    config: Config,
    *,
    on_ready: Callable[[Address], None] = lambda _: None,
    stop: trio.Event | None = None,
    on_made: Callable[[Server], None] = lambda _: None,
) -> None:
    """Run a server from its settings until ``stop`` is set; returns after an orderly shutdown.

    ``on_ready`` is called once connections are accepted; ``on_made`` is given the server before it listens, for its
    ``reload``. Raises ``ConfigError`` and ``OSError``.
    """
    check(config)
    server = Server(config, build_services(config), KeyRing.from_config(config, key_lines(config)))
    if stop is not None:
        server.stop = stop
    on_made(server)
    gc.freeze()  # nothing that exists by now goes away: full collections need not look at it (design.md section 4)
    await server.serve(on_ready)


async def _open_listeners(config: Config) -> list[trio.SocketListener]:
    """Every address of the host; one alone if the port is free to choose, since each would get its own."""
    try:
        listeners = list(await trio.open_tcp_listeners(config.port, host=config.host))
    except OSError as error:
        where = f"cannot listen on {config.host} port {config.port}"
        raise type(error)(error.errno, f"{where}: {error.strerror or error}") from error
    while config.port == 0 and len(listeners) > 1:
        await listeners.pop().aclose()
    return listeners


def _address_of(listener: trio.SocketListener, config: Config) -> Address:
    port: int = listener.socket.getsockname()[1]
    return Address(host=config.host, port=port, tls=config.certfile is not None)


def _tls_context(config: Config) -> ssl.SSLContext | None:
    if config.certfile is None or config.keyfile is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(config.certfile, config.keyfile)
    return context
