"""One WebSocket connection's life: a reader that never waits for a turn, and one task a lane that runs its turns.

The rules are ``protocol/``'s, the work is ``turn/``'s; this file holds the tasks, the deadlines and the order in which
a connection ends (shutdown, the age limit, the client's leaving).
"""

from __future__ import annotations

import contextlib
import math
from functools import partial

import trio

from respserver.errors import ApiError, ConnectionLimitReached, ShuttingDown, ToolTimeout
from respserver.logger import get_logger
from respserver.message_socket import Socket, SocketClosed
from respserver.protocol.chain import Pause
from respserver.protocol.commands import AwaitOutputs, Create, Ignore, Reject, ResumeTurn, StartTurn
from respserver.protocol.connection import Connection, Delivery
from respserver.protocol.lane import Lane, error_frame
from respserver.schema.codec import encode
from respserver.schema.events import Event, ResponseDone
from respserver.schema.items import InputItem
from respserver.turn.interrupt import Interrupt
from respserver.turn.record import rejected_record
from respserver.turn.routing import KeptRoute
from respserver.turn.run import run_turn
from respserver.turn.services import Services
from respserver.turn.slots import Suspensions
from respserver.turn.stopwatch import Stopwatch

log = get_logger("respserver.session")

GOING_AWAY = 1001


class LanePort:
    """A turn's way out over WebSocket: events become frames of this lane, written at once."""

    keeps_context = True
    transport = "websocket"

    def __init__(
        self,
        socket: Socket,
        lane: Lane,
        services: Services,
        *,
        tenant: str,
        connection_id: str,
        suspensions: Suspensions,
    ) -> None:
        self.lane = lane
        self.tenant = tenant
        self.connection_id = connection_id
        self.kept_route = KeptRoute(services.router)
        self._socket = socket
        self._metrics = services.metrics
        self._suspensions = suspensions
        self._tool_seconds = services.config.limits.tool_seconds
        self._outputs: list[InputItem] = []
        self._woken = trio.Event()
        self._watch: Stopwatch | None = None

    def send(self, events: list[Event]) -> None:
        """Number, encode and write events; those that are due together leave in one write."""
        self._socket.send_many(list(map(self.lane.send_event, events)))

    def send_failure(self, events: list[Event], error: ApiError) -> None:  # noqa: ARG002 - SSE shows the error too
        """``response.failed`` stands alone over WebSocket (F18)."""
        self.send(events)

    async def drain(self) -> None:
        """Wait while the client is too far behind."""
        await self._socket.drain()

    async def suspend(self, done: ResponseDone, pause: Pause, watch: Stopwatch) -> list[InputItem]:
        """Send ``response.done`` and wait for the outputs. Raises ``TooManySuspended`` and ``ToolTimeout``."""
        with self._suspensions:
            return await self._suspend(done, pause, watch)

    async def _suspend(self, done: ResponseDone, pause: Pause, watch: Stopwatch) -> list[InputItem]:
        self._metrics.pauses += 1
        self._woken = trio.Event()
        self._watch = watch
        self.lane.pause = pause
        self.send([done])
        watch.begin("suspended")
        log.info(
            "suspended",
            connection_id=self.connection_id,
            response_id=pause.response_id,
            calls=len(pause.open_calls),
            tool_seconds=self._tool_seconds,
        )
        with trio.move_on_after(self._tool_seconds):
            await self._woken.wait()
        if not self._woken.is_set():
            raise ToolTimeout(self._tool_seconds)
        outputs, self._outputs = self._outputs, []
        return outputs

    def wake(self, items: list[InputItem], message: Stopwatch) -> None:
        """The outputs are in: the suspended turn goes on. ``message`` runs since the last of them came."""
        assert self._watch is not None  # only what was suspended is resumed
        self._watch.go_on(message)
        self._outputs = items
        self._woken.set()


class Session:
    """The task tree around one ``Connection``."""

    def __init__(
        self,
        socket: Socket,
        services: Services,
        *,
        tenant: str,
        stop: trio.Event,
        default_model: str | None = None,
    ) -> None:
        limits = services.config.limits
        self._socket = socket
        self._services = services
        self._stop = stop
        self._id = services.new_id("conn")
        self._opened_at = trio.current_time()
        self._connection = Connection(
            services.config.mode,
            "websocket",
            opened_at=self._opened_at,
            max_age=limits.connection_seconds,
            max_waiting=limits.queued_creates,
            max_waiting_size=limits.queued_bytes,
            strict=services.config.strict,
            default_model=default_model,
        )
        lane = self._connection.lane
        self._port = LanePort(
            socket,
            lane,
            services,
            tenant=tenant,
            connection_id=self._id,
            suspensions=Suspensions(limits.connection_suspended_rollouts, "connection", services.suspensions),
        )
        # Bounded by Connection.
        self._queue, self._queued = trio.open_memory_channel[tuple[Create, Stopwatch]](math.inf)
        self._interrupt: Interrupt | None = None
        self._idle = trio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Serve the connection until either side ends it. Frees everything it held."""
        self._services.metrics.connections += 1
        log.info("connection_opened", connection_id=self._id, mode=str(self._services.config.mode))
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._run_lane)
                nursery.start_soon(self._watch_end)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            self._free(self._connection.lane)
            log.info("connection_closed", connection_id=self._id)

    async def _read(self) -> None:
        """Take every message as it comes; nothing here waits for a turn."""
        while True:
            try:
                text = await self._socket.receive()
                if not self._receive(text):
                    await self._socket.drain()  # a flood of refused frames waits for its reader
            except SocketClosed as closed:
                log.debug("peer_closed", connection_id=self._id, code=closed.code)
                return

    def _receive(self, text: str) -> bool:
        """Take one message; False if it was answered with an error."""
        watch = Stopwatch(self._services.clock)
        answer = self._connection.receive_message(text, trio.current_time(), partial(watch.begin, "validate"))
        watch.begin("queue")
        match answer:
            case Reject(error=error, create=create):
                if create is not None:
                    self._count_refusal(create, error, watch)
                self._send_error(error)
                return False
            case Ignore(type=event_type):
                log.debug("ignored_event", connection_id=self._id, type=event_type)
            case Delivery(event=Create() as create):
                self._idle = trio.Event() if self._idle.is_set() else self._idle
                self._queue.send_nowait((create, watch))
            case Delivery(lane=lane, event=append):
                return self._take_append(lane.begin(append), watch)
        return True

    def _take_append(self, command: StartTurn | ResumeTurn | AwaitOutputs | Reject, watch: Stopwatch) -> bool:
        match command:
            case ResumeTurn(items=items):
                self._port.wake(items, watch)
            case AwaitOutputs(missing=missing):
                log.debug("append_taken", connection_id=self._id, missing=len(missing))
            case Reject(error=error):
                self._send_error(error)
                return False
        return True

    async def _run_lane(self) -> None:
        """Run the lane's turns one after the other."""
        lane = self._connection.lane
        async for create, watch in self._queued:
            try:
                await self._run_create(lane, create, watch)
                await self._socket.drain()  # a client that reads nothing gets nothing more to read
            except SocketClosed:
                return
            self._connection.finish_create(create)
            self._free_dropped(lane)
            if self._connection.idle:
                self._idle.set()

    async def _run_create(self, lane: Lane, create: Create, watch: Stopwatch) -> None:
        if self._connection.closing is not None:
            self._count_refusal(create, self._connection.closing, watch)
            self._send_error(self._connection.closing)
            return
        start = lane.begin(create)
        if isinstance(start, Reject):
            self._count_refusal(create, start.error, watch)
            self._socket.send_many([lane.error_frame(start.error)])
            return
        assert not isinstance(start, ResumeTurn | AwaitOutputs)  # only appends lead there
        self._interrupt = Interrupt()
        result = await run_turn(start, self._port, self._services, self._interrupt, watch)
        self._interrupt = None
        if result.response is None and result.error is not None:
            self._socket.send_many([lane.refuse(result.error)])

    async def _watch_end(self) -> None:
        """End the connection in order at shutdown or at its greatest age."""
        with contextlib.suppress(SocketClosed):
            await self._end_in_order()

    async def _end_in_order(self) -> None:
        limits = self._services.config.limits
        reason: ApiError = ShuttingDown()
        with trio.move_on_at(self._opened_at + limits.connection_seconds) as scope:
            await self._stop.wait()
        if scope.cancelled_caught:
            reason = ConnectionLimitReached(limits.connection_seconds / 60)
            self._send_error(reason)
        self._connection.closing = reason
        if self._interrupt is not None:
            self._interrupt.dismiss(reason)
        with trio.move_on_after(limits.grace_seconds):
            await self._idle.wait()
        if self._interrupt is not None:
            self._interrupt.fire(reason)
        await self._idle.wait()
        await self._socket.close(GOING_AWAY, reason.code)

    def _count_refusal(self, create: Create, error: ApiError, watch: Stopwatch) -> None:
        """A create that is not even tried is a refused turn like one that is."""
        self._services.metrics.refused += 1
        self._services.post.submit(rejected_record(create, self._port, error), watch)

    def _send_error(self, error: ApiError) -> None:
        self._socket.send_many([encode(error_frame(error))])

    def _free_dropped(self, lane: Lane) -> None:
        while lane.dropped:
            self._services.post.runs.close_soon(lane.dropped.pop().context)

    def _free(self, lane: Lane) -> None:
        """The connection cache is gone with its connection; what is stored may be continued elsewhere."""
        latest, lane.latest = lane.latest, None
        if latest is not None:
            self._services.kept.keep(self._port.tenant, latest)
        self._free_dropped(lane)
