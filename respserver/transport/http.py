"""One turn over HTTP: as JSON or as server-sent events, through the same rules and the same turn as WebSocket.

A request is a connection with a single lane and a single create. The turn runs in a task of its own, so that the
events of a stream are made while hypercorn writes the ones before; the stream ends that task when its client leaves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator

import trio

from respserver.config import Mode
from respserver.errors import ApiError, ServerError
from respserver.logger import get_logger
from respserver.protocol import sse
from respserver.protocol.chain import Pause
from respserver.protocol.commands import Create, Reject
from respserver.protocol.connection import Connection
from respserver.protocol.lane import Lane, error_detail
from respserver.protocol.validate import Fields
from respserver.schema.events import ErrorEvent, Event, ResponseDone
from respserver.schema.items import InputItem
from respserver.turn.interrupt import Interrupt
from respserver.turn.record import rejected_record
from respserver.turn.routing import KeptRoute
from respserver.turn.run import TurnResult, run_turn
from respserver.turn.services import Services
from respserver.turn.slots import TurnSlots
from respserver.turn.stopwatch import Stopwatch
from respserver.turn.toolboxes import Toolboxes

log = get_logger("respserver.http")


class JsonPort:
    """A turn whose client waits for the whole Response: events are not sent at all."""

    keeps_context = False
    transport = "json"

    def __init__(self, lane: Lane, services: Services, *, tenant: str, request_id: str) -> None:
        self.lane = lane
        self.tenant = tenant
        self.connection_id = request_id
        self.own_slots: TurnSlots | None = None
        self.kept_route = KeptRoute(services.router)
        self.toolboxes = Toolboxes(services.hosts, services.config.limits.end_seconds)

    def send(self, events: list[Event]) -> None:
        """Nothing: the terminal snapshot is the answer."""

    def send_failure(self, events: list[Event], error: ApiError) -> None:
        """Nothing: the error becomes the answer's status and body."""

    async def drain(self) -> None:
        """Give other tasks a turn, as a write would."""
        await trio.lowlevel.checkpoint()

    async def suspend(self, done: ResponseDone, pause: Pause, watch: Stopwatch) -> list[InputItem]:  # noqa: ARG002
        """Never comes: HTTP is the same in both modes, turns end at a tool call."""
        raise ServerError


class SsePort(JsonPort):
    """A turn whose events go out as a stream: a bounded buffer between the turn and hypercorn."""

    transport = "sse"

    def __init__(self, lane: Lane, services: Services, *, tenant: str, request_id: str) -> None:
        super().__init__(lane, services, tenant=tenant, request_id=request_id)
        self.begun = trio.Event()
        """Set with the first event, or when the turn is over without any."""
        self.scope = trio.CancelScope()
        """Cancelled when the reader leaves."""
        self.refused: ApiError | None = None
        """Why there will be no event, if the turn was refused."""
        self._limit = services.config.limits.outbox_bytes
        self._keep_alive = services.config.sse_keepalive_seconds or float("inf")
        self._ready: deque[bytes] = deque()
        self._bytes = 0
        self._changed = trio.Event()
        self._over = False
        self._is_read = False

    def send(self, events: list[Event]) -> None:
        """Number, encode and frame events; those that are due together leave in one chunk."""
        self._put(b"".join(sse.frame(_type_of(event), self.lane.send_event(event)) for event in events))

    def send_failure(self, events: list[Event], error: ApiError) -> None:
        """The ``error`` event that makes SDKs raise, then ``response.failed`` (F17, F18)."""
        shown = ErrorEvent(code=error.code, message=error.message, param=error.param, error=error_detail(error))
        self.send([*events[:-1], shown, events[-1]])

    async def drain(self) -> None:
        """Wait until the first chunk was taken, and then while the client is too far behind.

        A short turn would else be over before the head of its answer has passed through the libraries.
        """
        while self._bytes > self._limit or not self._is_read:
            await self._wait()

    def end(self) -> None:
        """The turn is over: what is buffered still goes out, then the end marker."""
        self._put(sse.DONE)
        self._over = True
        self.begun.set()

    async def next_chunk(self) -> bytes | None:
        """What is due, joined; a comment line after silence; None at the end."""
        if not self._ready and not self._over:
            with trio.move_on_after(self._keep_alive):
                while not self._ready and not self._over:
                    await self._wait()
        if self._ready:
            chunk = b"".join(self._ready)
            self._ready.clear()
            self._bytes = 0
            self._is_read = True
            self._notify()
            return chunk
        return None if self._over else sse.KEEP_ALIVE

    def _put(self, chunk: bytes) -> None:
        self._ready.append(chunk)
        self._bytes += len(chunk)
        self.begun.set()
        self._notify()

    async def _wait(self) -> None:
        await self._changed.wait()

    def _notify(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


class HttpTurns:
    """Runs the turns of HTTP requests and ends them at shutdown."""

    def __init__(self, services: Services, nursery: trio.Nursery) -> None:
        self._services = services
        self._nursery = nursery
        self._running: set[Interrupt] = set()
        self._closing: ApiError | None = None
        self._idle = trio.Event()

    async def run(self, fields: Fields, *, tenant: str, request_id: str, watch: Stopwatch) -> TurnResult | SsePort:
        """Serve the fields of a POST body: a finished turn, or the port of a stream that has begun. ``watch`` runs
        since the body came.

        Raises ``ApiError`` if the turn is refused, also for a stream: an event stream only begins once the turn has.
        """
        connection = Connection(Mode.SHIPPED, "http", strict=self._services.config.strict)
        port = JsonPort(connection.lane, self._services, tenant=tenant, request_id=request_id)
        connection.closing = self._closing
        taken = _take(connection, fields, watch)
        if isinstance(taken, Reject):
            assert taken.create is not None  # nothing else comes from here
            self._services.metrics.refused += 1
            self._services.post.submit(rejected_record(taken.create, port, taken.error), watch)
            raise taken.error
        interrupt = Interrupt()
        self._running.add(interrupt)  # before its task runs: a shutdown in between must wait for it
        if taken.request is None or not taken.request.params.stream:
            return await self._play(taken, port, interrupt, watch)
        stream = SsePort(connection.lane, self._services, tenant=tenant, request_id=request_id)
        self._nursery.start_soon(self._stream, taken, stream, interrupt, watch)
        try:
            await stream.begun.wait()
        except trio.Cancelled:
            stream.scope.cancel()
            raise
        if stream.refused is not None:
            raise stream.refused
        return stream

    async def shut_down(self, error: ApiError, grace: float) -> None:
        """Take no more requests and refuse those that wait for a slot; give running turns their grace time, then end
        them with ``error``."""
        self._closing = error
        for interrupt in list(self._running):
            interrupt.dismiss(error)
        with trio.move_on_after(grace):
            while self._running:
                self._idle = trio.Event()
                await self._idle.wait()
        for interrupt in list(self._running):
            interrupt.fire(error)
        while self._running:
            self._idle = trio.Event()
            await self._idle.wait()

    async def _play(self, create: Create, port: JsonPort, interrupt: Interrupt, watch: Stopwatch) -> TurnResult:
        try:
            return await run_turn(create, port, self._services, interrupt, watch)
        finally:
            await port.toolboxes.aclose()
            self._running.discard(interrupt)
            self._idle.set()
            if port.lane.latest is not None:
                self._services.kept.keep(port.tenant, port.lane.latest)

    async def _stream(self, create: Create, port: SsePort, interrupt: Interrupt, watch: Stopwatch) -> None:
        """Run a stream's turn. It runs in the server's own nursery: nothing may come out of here (F37)."""
        try:
            with port.scope:
                result = await self._play(create, port, interrupt, watch)
                if result.response is None:
                    port.refused = result.error
        except Exception:
            log.exception("stream_fault", request_id=port.connection_id)
            port.refused = ServerError()
        finally:
            port.end()


async def chunks(port: SsePort) -> AsyncIterator[bytes]:
    """The stream's body. Who reads it cancels the port's scope at the end, also if it has read nothing."""
    while (chunk := await port.next_chunk()) is not None:
        yield chunk


def _take(connection: Connection, fields: Fields, watch: Stopwatch) -> Create | Reject:
    """Read the one create of a request; a ``Reject`` if it cannot be served."""
    watch.begin("validate")
    delivery = connection.receive_create(fields, 0.0)
    if isinstance(delivery, Reject):
        return delivery
    create = delivery.event
    assert isinstance(create, Create)  # nothing else is read from a body
    watch.begin("queue")
    return create if create.error is None else Reject(error=create.error, create=create)


def _type_of(event: Event) -> str:
    tag = event.__struct_config__.tag
    assert isinstance(tag, str)  # every event struct has one
    return tag
