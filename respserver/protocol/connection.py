"""One connection's rules, sans-IO: a message in, what to do about it out. Never raises on what a client sends.

HTTP uses the same object for the one turn of a request, so that both transports share every rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import msgspec
from msgspec import Raw

from respserver.config import Mode
from respserver.errors import (
    ApiError,
    ConnectionLimitReached,
    InvalidField,
    InvalidJson,
    InvalidStreamId,
    MissingParameter,
    QueueFull,
    ResponseNotSuspended,
    ResponseSuspended,
    SteerTargetNotFound,
    StreamLimitReached,
    SuccessorFailed,
    TooManySteers,
    UnknownEventType,
)
from respserver.mistakes import nearest
from respserver.protocol.commands import Append, Create, Ignore, Reject, Tell
from respserver.protocol.lane import Lane
from respserver.protocol.open_item import NewId
from respserver.protocol.read_steer import read_steer
from respserver.protocol.states import LaneState
from respserver.protocol.steering import NOTHING, Steer, failed
from respserver.protocol.validate import NULL, Fields, Transport, peek_string, read_append, read_create
from respserver.schema.codec import encode, read_object
from respserver.schema.events import SteerAccepted, SteerFailed
from respserver.schema.input import check_sizes
from respserver.schema.tools import NO_TOOLS, ToolSet

MAX_LANES = 32
"""Names that one connection may give, the default lane not among them (protocol.md section 1.7)."""
MAX_ACTIVE = 16
"""Responses of one connection that run at once, the default lane's included (protocol.md section 1.7)."""
MAX_STEERS = 32
"""Submissions of steering input that wait on one lane; other servers' bound (protocol.md section 2.3)."""
_OURS = "response."
"""What the types of all events begin with that are taken."""
_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")


def _nobody() -> None:
    """Nobody takes the time."""


def _no_id(prefix: str) -> str:  # pragma: no cover - HTTP steers nothing
    """No ids are made where nothing is steered."""
    raise NotImplementedError(prefix)


def _size(text: str | bytes) -> int:
    """Bytes of a frame; most have no others than ASCII, which is known without looking."""
    return len(text) if text.isascii() else len(text.encode() if isinstance(text, str) else text)


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
        max_lanes: int = MAX_LANES,
        max_active: int = MAX_ACTIVE,
        max_steers: int = MAX_STEERS,
        max_media: int = 1 << 26,
        strict: bool = False,
        default_model: str | None = None,
        new_id: NewId = _no_id,
    ) -> None:
        self._max_steers = max_steers
        self._max_media = max_media
        self.lane = Lane(mode, find_holder=self._holder_of, max_steers=max_steers)
        """The default lane."""
        self.named: dict[str, Lane] = {}
        """The lanes that the client has named so far; none is ever forgotten."""
        self.closing: ApiError | None = None
        """Once set, every further create is refused with it."""
        self._mode = mode
        self._transport: Transport = transport
        self._opened_at = opened_at
        self._max_age = max_age
        self._max_waiting = max_waiting
        self._max_waiting_size = max_waiting_size
        self._max_lanes = max_lanes
        self._max_active = max_active
        self._strict = strict
        self._default_model = default_model
        self._pending = 0
        """Creates delivered and not yet finished, on all lanes: those that run and those that wait."""
        self._pending_size = 0
        """Bytes of their frames."""
        self._last_tools: ToolSet = NO_TOOLS
        self._new_id = new_id

    @property
    def lanes(self) -> Iterator[Lane]:
        """All lanes, the default one first."""
        yield self.lane
        yield from self.named.values()

    @property
    def waiting(self) -> int:
        """Creates that wait: behind a turn of their lane, or because too many turns of the connection run."""
        return self._count_waiting()

    @property
    def idle(self) -> bool:
        """Whether nothing runs or waits."""
        return self._pending == 0

    def receive_message(
        self, text: str | bytes, now: float, when_read: Callable[[], None] = _nobody
    ) -> Delivery | Reject | Ignore | Tell:
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
            return self.receive_create(fields, now, _size(text))
        if event_type == "response.append" and self.lane.suspends:
            return self._receive_append(fields)
        if event_type == "response.steer" and not self.lane.suspends:
            return self._receive_steer(fields, _size(text))
        if event_type == "response.processed":
            return Ignore(type=event_type)
        return Reject(error=UnknownEventType(event_type, self._hint(event_type or "")))

    def _hint(self, event_type: str) -> str:
        """What to do in place of an event that is not taken; it may be one that is, misspelt."""
        if event_type in _HINTS:
            return _HINTS[event_type]
        taken = ("create", "append" if self.lane.suspends else "steer")
        meant = nearest(event_type.removeprefix(_OURS), taken)
        return f"Did you mean '{_OURS}{meant}'?" if meant else ""

    def receive_create(self, fields: Fields, now: float, size: int = 0) -> Delivery | Reject:
        """Take the fields of a create of ``size`` bytes: from a frame, or from the body of a POST."""
        name = None
        parent = peek_string(fields, "previous_response_id")
        model = peek_string(fields, "model") or self._default_model or ""
        try:
            if "stream_id" in fields:
                name = self._stream_id(fields)
            known = self.lane if name is None else self.named.get(name)
            if known is None or not known.pending:  # a lane that is busy refuses it behind what it does
                self._check_open(now)
            lane = self.lane if name is None else self._lane(name)
        except ApiError as error:
            refused = Create(request=None, previous_response_id=parent, model=model)
            return Reject(error=error, stream_id=name, create=refused)
        event = self._read_create(fields, lane, parent, model, size)
        no_room = self._no_room(lane, event)
        if no_room is not None:
            return Reject(error=no_room, stream_id=name, create=event)
        lane.pending += 1
        self._pending += 1
        self._pending_size += size
        return Delivery(lane=lane, event=event)

    def finish_create(self, lane: Lane, event: Create) -> None:
        """A delivered create was served or refused: it counts no more."""
        lane.pending -= 1
        self._pending -= 1
        self._pending_size -= event.size

    def _check_open(self, now: float) -> None:
        """Raises why no create is taken any more, however it reads."""
        if self._max_age is not None and now - self._opened_at >= self._max_age:
            raise ConnectionLimitReached(self._max_age / 60)
        if self.closing is not None:
            raise self.closing

    def _stream_id(self, fields: Fields) -> str | None:
        """The name of the lane that a message is for; None is the default lane's. Raises ``InvalidStreamId``."""
        if fields["stream_id"] == NULL or self._transport == "http":  # where ``read_create`` refuses it
            return None
        name = peek_string(fields, "stream_id")
        if name is None or not _STREAM_ID.fullmatch(name):
            raise InvalidStreamId
        return name

    def _lane(self, name: str) -> Lane:
        """The lane of this name, a new one if it is the first time. Raises ``StreamLimitReached``."""
        lane = self.named.get(name)
        if lane is None:
            if len(self.named) >= self._max_lanes:
                raise StreamLimitReached(self._max_lanes)
            lane = Lane(self._mode, name, find_holder=self._holder_of, max_steers=self._max_steers)
            self.named[name] = lane
            lane.tools = self._last_tools  # lanes of one client mostly offer the same
        return lane

    def _holder_of(self, response_id: str) -> Lane | None:
        """The lane whose latest response this is."""
        return next((lane for lane in self.lanes if lane.holds(response_id)), None)

    def _no_room(self, lane: Lane, event: Create) -> ApiError | None:
        """Why a create cannot stand in its lane's line."""
        suspended = lane.suspended_by(event) or self._suspended_elsewhere(event)
        if suspended is not None:
            return ResponseSuspended(suspended)
        # Counting over all lanes is only worth it when there may be too many.
        if self._pending >= self._max_waiting and self._count_waiting(lane) > self._max_waiting:
            return QueueFull(self._max_waiting)
        if self._pending and self._pending_size + event.size > self._max_waiting_size:
            return QueueFull(self._max_waiting, size=self._max_waiting_size)
        return None

    def _suspended_elsewhere(self, event: Create) -> str | None:
        """The id of another lane's suspended response that a create names as its parent, if it does."""
        if not self.lane.suspends:
            return None
        pauses = [lane.pause for lane in self.lanes if lane.pause is not None]
        suspended = [pause.response_id for pause in pauses if pause.response_id == event.previous_response_id]
        return suspended[0] if suspended else None

    def _count_waiting(self, one_more_on: Lane | None = None) -> int:
        """Creates that cannot run yet, if ``one_more_on`` had another: a lane runs one, and only so many lanes do. A
        suspended rollout counts among neither."""
        pending = self._pending + (one_more_on is not None)
        busy = [lane for lane in self.lanes if lane.pending or lane is one_more_on]
        suspended = sum(lane.state is LaneState.SUSPENDED for lane in busy)
        return pending - suspended - min(self._max_active, len(busy) - suspended)

    def _read_create(self, fields: Fields, lane: Lane, parent: str | None, model: str, size: int) -> Create:
        try:
            request = read_create(
                fields,
                self._transport,
                strict=self._strict,
                default_model=self._default_model,
                last_tools=lane.tools,
            )
        except ApiError as error:
            return Create(request=None, previous_response_id=parent, model=model, error=error, size=size)
        self._last_tools = request.tools
        return Create(request=request, previous_response_id=request.params.previous_response_id, size=size)

    def _receive_append(self, fields: Fields) -> Delivery | Reject:
        name = None
        try:
            name = self._stream_id(fields) if "stream_id" in fields else None
            request = read_append(fields, self._strict)
            lane = self.lane if name is None else self.named.get(name)
            if lane is None:
                raise ResponseNotSuspended(request.response_id)
            check_sizes(request.items, self._max_media)
            return Delivery(lane=lane, event=Append(request=request))
        except ApiError as error:
            return Reject(error=error, stream_id=name)

    def _receive_steer(self, fields: Fields, size: int) -> Tell | Reject:
        """Queue steering input; whatever is wrong with it, it goes back to the client."""
        target = peek_string(fields, "previous_response_id")
        if not target:
            missing = fields.get("previous_response_id", NULL) == NULL
            name = "previous_response_id"
            return Reject(error=MissingParameter(name) if missing else InvalidField(name, "expected an id."))
        given = Raw(bytes(fields.get("input", NOTHING)))  # a copy: the frame need not stay for it
        lane = next((lane for lane in self.lanes if lane.steering.knows(target)), None)
        event: SteerAccepted | SteerFailed
        try:
            items = read_steer(fields, self._max_media)
            if lane is None:
                raise SteerTargetNotFound(target)
            if self._pending_size + sum(lane.steering.size for lane in self.lanes) + size > self._max_waiting_size:
                raise TooManySteers(self._max_steers, size=self._max_waiting_size)
            if self.closing is not None and lane.steering.target == target:
                raise SuccessorFailed  # nothing can follow any more, and the response may use its grace time
            steer = Steer(id=self._new_id("steer"), response_id=target, items=items, input=given, size=size)
            event = lane.steering.accept(steer)
        except ApiError as error:
            event = failed(target, given, error)
        return Tell(message=encode(event) if lane is None else lane.tell(event, target))


_HINTS = {
    "response.steer": "This server runs in prototype mode, which has no steering.",
    "response.append": "This server runs in shipped mode: send response.create with previous_response_id.",
    "response.cancel": "Close the connection to cancel.",
}
