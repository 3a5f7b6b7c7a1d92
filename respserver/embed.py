"""A server inside another program: ``open_server`` under Trio, ``start_server`` in a background thread for everyone
else (asyncio, or no async library at all)."""

from __future__ import annotations

import contextlib
import errno
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import msgspec
import trio

from respserver.auth import KeyRing
from respserver.config import Config, check
from respserver.engines.base import Engine
from respserver.engines.sim import Script
from respserver.errors import ConfigError
from respserver.ledger.base import TurnRecord
from respserver.ledger.tally import Tally
from respserver.ledger.totals import Totals
from respserver.metrics import Metrics
from respserver.server import Address, Server
from respserver.services import build_services
from respserver.settings import key_lines
from respserver.store.base import Store
from respserver.tools.base import Host

EMBEDDED = Config(port=0)


class RunningServer(msgspec.Struct, frozen=True, kw_only=True):
    """A server that takes connections."""

    address: Address
    metrics: Metrics
    reload: Callable[[Config], None]
    """Takes the routing table and the API keys of other settings, from any thread (``Server.reload``)."""
    tally: Tally
    settle: Callable[[], None] = lambda: None
    """Returns once the server has finished what it is just doing: only one in another thread can be in the middle."""

    @property
    def base_url(self) -> str:
        """What OpenAI's SDKs call ``base_url``."""
        return self.address.base_url

    @property
    def ws_url(self) -> str:
        """The WebSocket endpoint."""
        return self.address.ws_url

    def usage(self) -> Totals:
        """What all turns so far have cost. A turn is counted before its client is told of its end.

        May be called from any thread, also when the server has ended.
        """
        self.settle()
        return self.tally.total

    def turns(self) -> list[TurnRecord]:
        """What each turn was and has cost, oldest first: the latest ones, as many as ``Limits.ledger_records``.

        May be called from any thread, also when the server has ended.
        """
        self.settle()
        return self.tally.latest


@contextlib.asynccontextmanager
async def open_server(
    config: Config = EMBEDDED,
    *,
    script: Script | None = None,
    engine: Engine | None = None,
    store: Store | None = None,
    hosts: Sequence[Host] = (),
) -> AsyncIterator[RunningServer]:
    """A server for the length of an ``async with`` block, in the same Trio loop.

    The default settings take a free port on loopback. ``script``, ``engine``, ``store`` and ``hosts`` (of tools that
    the server runs itself, ``respserver.tools.base``) replace what the settings name. Raises ``ConfigError`` for bad
    settings and ``OSError`` if the port is taken.
    """
    server = make_server(config, script=script, engine=engine, store=store, hosts=hosts)
    async with trio.open_nursery() as nursery:
        with _free_port_hint():
            address = await nursery.start(_serve, server)
        try:
            yield running_server(server, address)
        finally:
            server.stop.set()


@contextlib.contextmanager
def start_server(
    config: Config = EMBEDDED,
    *,
    script: Script | None = None,
    engine: Engine | None = None,
    store: Store | None = None,
) -> Iterator[RunningServer]:
    """A server for the length of a ``with`` block, in a thread of its own. Raises what ``open_server`` raises."""
    thread = _ServerThread(config, script, engine, store)
    running = thread.begin()
    try:
        yield running
    finally:
        thread.end()


def make_server(
    config: Config,
    *,
    script: Script | None = None,
    engine: Engine | None = None,
    store: Store | None = None,
    hosts: Sequence[Host] = (),
) -> Server:
    """A server that does not listen yet. Raises ``ConfigError``."""
    check(config)
    # Callers without a type checker pass anything.
    if script is not None and not isinstance(script, Script):
        raise ConfigError("script", f'expected a Script, got {type(script).__name__}; use Script.of("…")')
    services = build_services(config, script=script, engine=engine, store=store, hosts=hosts)
    return Server(config, services, KeyRing.from_config(config, key_lines(config)))


def running_server(server: Server, address: Address) -> RunningServer:
    """What tells of a server that listens at ``address``, for callers in its own thread."""
    services = server.services
    return RunningServer(address=address, metrics=services.metrics, reload=server.reload, tally=services.post.tally)


@contextlib.contextmanager
def _free_port_hint() -> Iterator[None]:
    """Whoever embeds a server and names no port wants any."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise type(error)(error.errno, f"{error.strerror}; use Config(port=0) for a free one") from error


async def _serve(server: Server, task_status: trio.TaskStatus[Address]) -> None:
    await server.serve(task_status.started)


class _ServerThread:
    def __init__(self, config: Config, script: Script | None, engine: Engine | None, store: Store | None) -> None:
        self._thread = threading.Thread(target=self._run, name="respserver", daemon=True)
        self._parts = (config, script, engine, store)
        self._ready = threading.Event()
        self._running: RunningServer | None = None
        self._failure: BaseException | None = None
        self._token: trio.lowlevel.TrioToken | None = None
        self._server: Server | None = None

    def begin(self) -> RunningServer:
        self._thread.start()
        self._ready.wait()
        if self._running is None:
            self._thread.join()
            raise self._failure or RuntimeError("the server thread ended before it was ready")
        return self._running

    def end(self) -> None:
        if self._token is not None and self._server is not None:
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._server.stop.set)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            trio.run(self._main)
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that opened the server
            self._failure = error
        finally:
            self._ready.set()

    async def _main(self) -> None:
        config, script, engine, store = self._parts
        self._server = server = make_server(config, script=script, engine=engine, store=store)
        self._token = trio.lowlevel.current_trio_token()
        with _free_port_hint():
            await server.serve(self._announce)

    def _announce(self, address: Address) -> None:
        assert self._server is not None  # made before it serves
        running = running_server(self._server, address)
        self._running = msgspec.structs.replace(running, settle=self._settle)
        self._ready.set()

    def _settle(self) -> None:
        """Wait for the end of the step that the server is in: it may have written an end and not counted it yet."""
        assert self._token is not None  # there is one before there is an address
        if threading.current_thread() is not self._thread:
            settled = threading.Event()
            with contextlib.suppress(trio.RunFinishedError):
                self._token.run_sync_soon(settled.set)
                settled.wait()
