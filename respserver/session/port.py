"""A turn's way out over WebSocket, and the place where a rollout stands suspended (prototype mode)."""

from __future__ import annotations

import trio

from respserver.errors import ApiError, ToolTimeout
from respserver.logger import get_logger
from respserver.message_socket import Socket
from respserver.protocol.chain import Pause
from respserver.protocol.lane import Lane
from respserver.schema.events import Event, ResponseDone
from respserver.schema.items import InputItem
from respserver.session.gate import Gate
from respserver.turn.routing import KeptRoute
from respserver.turn.services import Services
from respserver.turn.slots import Suspensions, TurnSlots
from respserver.turn.stopwatch import Stopwatch
from respserver.turn.toolboxes import Toolboxes

log = get_logger("respserver.session")


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
        own_slots: TurnSlots,
        suspensions: Suspensions,
        toolboxes: Toolboxes,
        gate: Gate,
    ) -> None:
        self.lane = lane
        self.tenant = tenant
        self.connection_id = connection_id
        self.own_slots: TurnSlots | None = own_slots
        self.kept_route = KeptRoute(services.router)
        self.toolboxes = toolboxes
        self._socket = socket
        self._metrics = services.metrics
        self._suspensions = suspensions
        self._gate = gate
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
        """Wait while the client is too far behind, and until the other lanes have gone on as far."""
        await self._socket.drain()
        if not self._gate.lets_pass(self.lane):
            await self._gate.enter(self.lane)

    async def suspend(self, done: ResponseDone, pause: Pause, watch: Stopwatch) -> list[InputItem]:
        """Send ``response.done`` and wait for the outputs. Raises ``TooManySuspended`` and ``ToolTimeout``."""
        with self._suspensions:
            self._begin_pause(done, pause, watch)
            del done  # nobody needs it while the client works
            return await self._wait_for_outputs()

    def _begin_pause(self, done: ResponseDone, pause: Pause, watch: Stopwatch) -> None:
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

    async def _wait_for_outputs(self) -> list[InputItem]:
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
