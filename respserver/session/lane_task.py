"""One lane's task: its creates in order, each to its end. Nothing here knows of other lanes but that they exist."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import trio

from respserver.errors import ApiError
from respserver.message_socket import Socket, SocketClosed
from respserver.protocol.commands import Create, Reject
from respserver.protocol.connection import Connection
from respserver.schema.events import SteerFailed, SteerPending
from respserver.session.port import LanePort
from respserver.turn.interrupt import Interrupt
from respserver.turn.record import rejected_record
from respserver.turn.run import TurnResult, run_turn
from respserver.turn.services import Services
from respserver.turn.stopwatch import Stopwatch


class LaneTask:
    """Runs what ``put`` has brought, one create after the other. ``when_done`` is called behind each of them."""

    def __init__(
        self,
        port: LanePort,
        connection: Connection,
        socket: Socket,
        services: Services,
        when_done: Callable[[], None],
    ) -> None:
        self.port = port
        self.lane = port.lane
        self._connection = connection
        self._socket = socket
        self._services = services
        self._when_done = when_done
        # Bounded by Connection.
        self._queue, self._queued = trio.open_memory_channel[tuple[Create, Stopwatch]](math.inf)
        self._interrupt: Interrupt | None = None

    def put(self, create: Create, watch: Stopwatch) -> None:
        """One more create for the end of the line. ``watch`` runs since its message came."""
        self._queue.send_nowait((create, watch))

    async def run(self) -> None:
        """Run creates, and the successors that steering asks for, until cancelled or until the client is gone."""
        async for create, watch in self._queued:
            try:
                following = await self._run_turn(create, watch)
                while following is not None:
                    watch = Stopwatch(self._services.clock)
                    watch.begin("queue")
                    following = await self._run_turn(following, watch)
                self._give_back()
                await self._socket.drain()  # a client that reads nothing gets nothing more to read
            except SocketClosed:
                return
            self._connection.finish_create(self.lane, create)
            self._free_dropped()
            self._when_done()

    def dismiss(self, reason: ApiError) -> None:
        """Refuse the turn that waits to begin, if one does."""
        if self._interrupt is not None:
            self._interrupt.dismiss(reason)

    def fire(self, reason: ApiError) -> None:
        """End the turn that runs, if one does."""
        if self._interrupt is not None:
            self._interrupt.fire(reason)

    def free(self) -> None:
        """The connection cache is gone with its connection; what is stored may be continued elsewhere."""
        latest, self.lane.latest = self.lane.latest, None
        if latest is not None:
            self._services.kept.keep(self.port.tenant, latest)
        self._free_dropped()

    def count_refusal(self, create: Create, error: ApiError, watch: Stopwatch) -> None:
        """A create that is not even tried is a refused turn like one that is."""
        self._services.metrics.refused += 1
        self._services.post.submit(rejected_record(create, self.port, error), watch)

    async def _run_turn(self, create: Create, watch: Stopwatch) -> Create | None:
        """Run one turn; the successor, if there is one."""
        if self._connection.closing is not None:
            self.count_refusal(create, self._connection.closing, watch)
            self._refuse(create, self._connection.closing, self.lane.error_frame(self._connection.closing))
            return None
        if create.error is not None:  # needs no slot for that
            begun = self.lane.begin(create)
            assert isinstance(begun, Reject)  # and the parent that it names has left the cache
            self.count_refusal(create, create.error, watch)
            self._refuse(create, create.error, self.lane.error_frame(create.error))
            return None
        self._interrupt = Interrupt()
        result = await run_turn(create, self.port, self._services, self._interrupt, watch)
        self._interrupt = None
        if result.response is not None:
            return self._follow(create, result)
        assert result.error is not None  # what is refused is refused for a reason
        self._refuse(create, result.error, self.lane.refuse(result.error))
        return None

    def _refuse(self, create: Create, error: ApiError, frame: bytes) -> None:
        """Tell of a refusal. Nobody asked for a successor: of that one only the steering input is heard again."""
        messages = [] if create.steers else [frame]
        if create.steers or not error.is_passing:
            steering = self.lane.steering
            messages += self._told(steering.fail(create.steers or steering.owed(create.previous_response_id)))
        self._socket.send_many(messages)

    def _follow(self, create: Create, result: TurnResult) -> Create | None:
        """What becomes of the steering input that came while a turn ran: the successor that takes it, if it can have
        one now."""
        steering, response = self.lane.steering, result.response
        assert create.request is not None
        assert response is not None
        if create.request.warm_up:
            if result.error is None:
                steering.warmed_up(create.previous_response_id, response.id)
            else:
                self._socket.send_many(self._told(steering.fail(steering.owed(create.previous_response_id))))
        if not steering.queued:
            return None
        if result.error is not None or self._connection.closing is not None:
            self._socket.send_many(self._told(steering.fail(steering.queued)))
            return None
        if result.required_input:
            self._socket.send_many(self._told(steering.owe(response.id, result.required_input)))
            return None
        return self.lane.successor(create.request)

    def _give_back(self) -> None:
        """Give back what waits for the outputs of a response that has left the cache and is stored nowhere."""
        steering = self.lane.steering
        for latest in self.lane.dropped:
            if not latest.stored and (steers := steering.owed(latest.response_id)):
                self._socket.send_many(self._told(steering.fail(steers)))

    def _told(self, events: Sequence[SteerPending | SteerFailed]) -> list[bytes]:
        return [self.lane.tell(event, event.steer.previous_response_id) for event in events]

    def _free_dropped(self) -> None:
        while self.lane.dropped:
            self._services.post.runs.close_soon(self.lane.dropped.pop().context)
