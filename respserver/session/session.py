"""One WebSocket connection's life: a reader that never waits for a turn, and one task a lane that runs its turns.

The rules are ``protocol/``'s, the work is ``turn/``'s; this room holds the tasks, the deadlines and the order in which
a connection ends (shutdown, the age limit, the client's leaving).
"""

from __future__ import annotations

import contextlib
import math
from functools import partial

import trio

from respserver.errors import ApiError, ConnectionLimitReached, ShuttingDown
from respserver.logger import get_logger
from respserver.message_socket import Socket, SocketClosed
from respserver.protocol.commands import AwaitOutputs, Create, Ignore, Reject, ResumeTurn, StartTurn, Tell
from respserver.protocol.connection import Connection, Delivery
from respserver.protocol.lane import Lane, error_frame
from respserver.schema.codec import encode
from respserver.session.gate import Gate
from respserver.session.lane_task import LaneTask
from respserver.session.port import LanePort
from respserver.turn.services import Services
from respserver.turn.slots import Suspensions, TurnSlots
from respserver.turn.stopwatch import Stopwatch
from respserver.turn.toolboxes import Toolboxes

log = get_logger("respserver.session")

GOING_AWAY = 1001


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
        self._tenant = tenant
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
            max_lanes=limits.connection_lanes,
            max_active=limits.connection_active_turns,
            max_steers=limits.pending_steers,
            max_media=limits.media_bytes,
            strict=services.config.strict,
            default_model=default_model,
            new_id=services.new_id,
        )
        self._own_slots = TurnSlots(limits.connection_active_turns, math.inf, services.metrics)
        self._suspensions = Suspensions(limits.connection_suspended_rollouts, "connection", services.suspensions)
        self._toolboxes = Toolboxes(services.hosts, limits.end_seconds)
        self._gate = Gate()
        self._nursery: trio.Nursery | None = None
        self._tasks: dict[Lane, LaneTask] = {}
        self._default = self._task_for(self._connection.lane)
        self._idle = trio.Event()
        self._idle.set()

    async def run(self) -> None:
        """Serve the connection until either side ends it. Frees everything it held."""
        self._services.metrics.connections += 1
        log.info("connection_opened", connection_id=self._id, mode=str(self._services.config.mode))
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                nursery.start_soon(self._default.run)
                nursery.start_soon(self._watch_end)
                await self._read()
                nursery.cancel_scope.cancel()
        finally:
            for task in self._tasks.values():
                task.free()
            await self._toolboxes.aclose()
            log.info("connection_closed", connection_id=self._id)

    async def _read(self) -> None:
        """Take every message as it comes; nothing here waits for a turn."""
        while True:
            try:
                text = await self._socket.receive()
                if not self._receive(text):
                    await self._socket.drain()  # a flood of frames that are answered on the spot waits for its reader
            except SocketClosed as closed:
                log.debug("peer_closed", connection_id=self._id, code=closed.code)
                return

    def _receive(self, text: str) -> bool:
        """Take one message; False if it was answered on the spot."""
        watch = Stopwatch(self._services.clock)
        answer = self._connection.receive_message(text, trio.current_time(), partial(watch.begin, "validate"))
        watch.begin("queue")
        match answer:
            case Reject(error=error, stream_id=stream_id, create=create):
                if create is not None:
                    self._default.count_refusal(create, error, watch)
                self._send_error(error, stream_id)
                return False
            case Tell(message=message):
                self._socket.send_many([message])
                return False
            case Ignore(type=event_type):
                log.debug("ignored_event", connection_id=self._id, type=event_type)
            case Delivery(lane=lane, event=Create() as create):
                self._idle = trio.Event() if self._idle.is_set() else self._idle
                self._task_for(lane).put(create, watch)
            case Delivery(lane=lane, event=append):
                return self._take_append(lane, lane.begin(append), watch)
        return True

    def _take_append(
        self, lane: Lane, command: StartTurn | ResumeTurn | AwaitOutputs | Reject, watch: Stopwatch
    ) -> bool:
        match command:
            case ResumeTurn(items=items):
                self._tasks[lane].port.wake(items, watch)
            case AwaitOutputs(missing=missing):
                log.debug("append_taken", connection_id=self._id, missing=len(missing))
            case Reject(error=error):
                self._send_error(error, lane.name)
                return False
        return True

    def _task_for(self, lane: Lane) -> LaneTask:
        """The lane's task, begun if this is the lane's first create."""
        task = self._tasks.get(lane)
        if task is None:
            port = LanePort(
                self._socket,
                lane,
                self._services,
                tenant=self._tenant,
                connection_id=self._id,
                own_slots=self._own_slots,
                suspensions=self._suspensions,
                toolboxes=self._toolboxes,
                gate=self._gate,
            )
            task = LaneTask(port, self._connection, self._socket, self._services, self._turn_is_over)
            self._tasks[lane] = task
            if self._nursery is not None:  # the default lane's begins with the session
                self._nursery.start_soon(task.run)
        return task

    def _turn_is_over(self) -> None:
        if self._connection.idle:
            self._idle.set()

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
        for task in self._tasks.values():
            task.dismiss(reason)
        with trio.move_on_after(limits.grace_seconds):
            await self._idle.wait()
        for task in self._tasks.values():
            task.fire(reason)
        await self._idle.wait()
        await self._socket.close(GOING_AWAY, reason.code)

    def _send_error(self, error: ApiError, stream_id: str | None = None) -> None:
        self._socket.send_many([encode(error_frame(error, stream_id))])
