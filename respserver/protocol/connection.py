"""One connection's rules, sans-IO: a message in, what to do about it out. Never raises on what a client sends.

HTTP uses the same object for the one turn of a request, so that both transports share every rule.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from respserver.config import Mode
from respserver.errors import (
    ApiError,
    ConnectionLimitReached,
    InvalidJson,
    QueueFull,
    ResponseSuspended,
    UnknownEventType,
)
from respserver.protocol.commands import Append, Create, Ignore, Reject
from respserver.protocol.lane import Lane
from respserver.protocol.validate import Fields, Transport, peek_string, read_append, read_create
from respserver.schema.codec import read_object


def _nobody() -> None:
    """Nobody takes the time."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """An event and the lane it belongs to."""

    lane: Lane
    event: Create | Append


class Connection:
    """The lanes of one socket and what it takes from its client."""

    def __init__(
        self,
        mode: Mode,
        transport: Transport,
        *,
        opened_at: float = 0.0,
        max_age: float | None = None,
        max_waiting: int = 64,
        max_waiting_size: int = 1 << 26,
        strict: bool = False,
        default_model: str | None = None,
    ) -> None:
        self.lane = Lane(mode)
        """The default lane; the only one so far."""
        self.closing: ApiError | None = None
        """Once set, every further create is refused with it."""
        self._transport: Transport = transport
        self._opened_at = opened_at
        self._max_age = max_age
        self._max_waiting = max_waiting
        self._max_waiting_size = max_waiting_size
        self._strict = strict
        self._default_model = default_model

    @property
    def waiting(self) -> int:
        """Creates that wait behind the running turn of their lane."""
        return max(0, self.lane.pending - 1)

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        return self.lane.pending == 0

    def receive_message(
        self, text: str | bytes, now: float, when_read: Callable[[], None] = _nobody
    ) -> Delivery | Reject | Ignore:
        """Read one client message that came at ``now`` (seconds, the clock of ``opened_at``).

        ``when_read`` is called between reading its JSON and understanding it, for whoever times these.
        """
        try:
            fields = read_object(text)
        except InvalidJson as error:
            return Reject(error=error)
        when_read()
        event_type = peek_string(fields, "type")
        if event_type == "response.create":
            return self.receive_create(fields, now, len(text))
        if event_type == "response.append" and self.lane.suspends:
            return self._receive_append(fields)
        if event_type == "response.processed":
            return Ignore(type=event_type)
        return Reject(error=UnknownEventType(event_type, _HINTS.get(event_type or "", "")))

    def receive_create(self, fields: Fields, now: float, size: int = 0) -> Delivery | Reject:
        """Take the fields of a create of ``size`` characters: from a frame, or from the body of a POST."""
        lane = self.lane
        error = self._ended(now)
        if error is not None:
            parent = peek_string(fields, "previous_response_id")
            return Reject(error=error, create=Create(request=None, previous_response_id=parent))
        event = self._read_create(fields, size)
        error = self._no_room(event)
        if error is not None:
            return Reject(error=error, create=event)
        lane.pending += 1
        lane.pending_size += size
        return Delivery(lane=lane, event=event)

    def finish_create(self, event: Create) -> None:
        """A delivered create was served or refused: it counts no more."""
        self.lane.pending -= 1
        self.lane.pending_size -= event.size

    def _ended(self, now: float) -> ApiError | None:
        """Why no create is taken any more, however it reads."""
        if self._max_age is not None and now - self._opened_at >= self._max_age:
            return ConnectionLimitReached(self._max_age / 60)
        return self.closing

    def _no_room(self, event: Create) -> ApiError | None:
        """Why a create cannot stand in the lane's line."""
        lane = self.lane
        suspended = lane.suspended_by(event)
        if suspended is not None:
            return ResponseSuspended(suspended)
        if lane.pending > self._max_waiting:  # one of them runs
            return QueueFull(self._max_waiting)
        if lane.pending and lane.pending_size + event.size > self._max_waiting_size:
            return QueueFull(lane.pending - 1, self._max_waiting_size)
        return None

    def _read_create(self, fields: Fields, size: int) -> Create:
        parent = peek_string(fields, "previous_response_id")
        try:
            request = read_create(
                fields,
                self._transport,
                strict=self._strict,
                default_model=self._default_model,
                last_tools=self.lane.tools,
            )
        except ApiError as error:
            return Create(request=None, previous_response_id=parent, error=error, size=size)
        return Create(request=request, previous_response_id=request.params.previous_response_id, size=size)

    def _receive_append(self, fields: Fields) -> Delivery | Reject:
        try:
            return Delivery(lane=self.lane, event=Append(request=read_append(fields, self._strict)))
        except ApiError as error:
            return Reject(error=error)


_HINTS = {
    "response.append": "This server runs in shipped mode: send response.create with previous_response_id.",
    "response.cancel": "Close the connection to cancel.",
}
